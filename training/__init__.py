"""Sampling, collecting rollouts, fine-tuning, checkpoints."""
