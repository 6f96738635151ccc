"""Probabilities in plain words."""


def chance(probability: float) -> str:
    """A probability as text: whole percent, or beyond 1 and 99 % as "under" and "over"."""
    if 0.01 <= probability <= 0.99:
        return f"{probability:.0%}"
    return "over 99 %" if probability > 0.5 else "under 1 %"
