"""Messages that wait for their time: delay levels, and with them the retries of consumers."""
