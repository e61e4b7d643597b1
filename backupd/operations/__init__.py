"""What happens in which order. One folder for each kind of operation; what they share stands here."""
