"""The paper's figures next to ours."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def beside(
    ours: pd.DataFrame, paper: pd.DataFrame, keys: Sequence[str], figures: dict[str, tuple[str, str]]
) -> pd.DataFrame:
    """A row for each figure of the paper that was measured here too: its keys, its name, the paper's value and
    ours. ``figures`` maps names to the columns of both, the paper's first."""
    frames = []
    for figure, (there, here) in figures.items():
        theirs = paper[[*keys, there]].rename(columns={there: "paper"})
        both = theirs.merge(ours[[*keys, here]].rename(columns={here: "here"}), on=list(keys))
        frames.append(both.assign(figure=figure)[[*keys, "figure", "paper", "here"]])
    return pd.concat(frames, ignore_index=True).dropna(subset=["paper", "here"], ignore_index=True)
