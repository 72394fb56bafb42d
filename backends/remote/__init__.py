"""What tiers over a network have in common, whatever their protocol."""
