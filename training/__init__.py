"""Sampling, collecting rollouts, LoRA fine-tuning, checkpoints."""
