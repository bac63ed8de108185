"""The Berkeley Function-Calling Leaderboard, multi-turn."""
