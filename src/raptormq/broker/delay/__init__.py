"""Delayed and timer messages: delay levels (also used by consumer retries) and arbitrary delivery times."""
