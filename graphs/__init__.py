"""The two agents, explore and validate, as LangGraph state machines."""
