"""What is wrong, and what to do about it: `sgkv doctor`."""

from sgkv.doctor.finding import Finding, Level

__all__ = ["Finding", "Level"]
