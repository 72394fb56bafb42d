"""The engine-neutral store: pages in, pages out, over an ordered list of tiers."""
