"""Where KV is in a fleet, and what is to become of it: registry, API, client, and the agents of stores."""
