"""The paper's figures with ours beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def beside(
    ours: pd.DataFrame, paper: pd.DataFrame, keys: Sequence[str], figures: dict[str, tuple[str, str]]
) -> pd.DataFrame:
    """A row for each figure of the paper's that there is here too: its keys, which figure, the paper's and ours.
    ``figures`` has the columns of both, the paper's first, by what they are."""
    frames = []
    for figure, (there, here) in figures.items():
        theirs = paper[[*keys, there]].rename(columns={there: "paper"})
        both = theirs.merge(ours[[*keys, here]].rename(columns={here: "here"}), on=list(keys))
        frames.append(both.assign(figure=figure)[[*keys, "figure", "paper", "here"]])
    return pd.concat(frames, ignore_index=True).dropna(subset=["paper", "here"], ignore_index=True)
