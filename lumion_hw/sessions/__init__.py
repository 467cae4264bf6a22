"""Sessions: one conversation per link, holding the lock, the deadlines and the way back after a missed reply."""
