"""Colours, markers and dashes that tell curves apart, also in grey and with any colour vision.

The colours are the palette of Okabe and Ito; neighbours differ in lightness.
"""

from __future__ import annotations

COLOURS = (
    "#0072B2", "#D55E00", "#000000", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#777777",
)  # fmt: skip
MARKERS = (  # paths centred at (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M0 -5L4.6 3.4L-4.6 3.4z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 5L4.6 -3.4L-4.6 -3.4z",
    "M-4 -4L4 4M4 -4L-4 4",
    "M0 -5V5M-5 0H5",
    "M-4 -2h8v4h-8z",
)
DASHES = ("7 4", "2 3", "14 4", "10 3 2 3", "1 5")
