"""What the broker itself has delivered, told by the log: each copy names the record that it was made of."""
