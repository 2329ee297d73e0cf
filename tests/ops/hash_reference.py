"""The masks of dropout in Python's unbounded integers, to hold the implementations in NumPy, torch and Triton to."""

from __future__ import annotations

from collections.abc import Sequence


def lowbias32(x: int) -> int:
    """Wellons' hash of 32 bits."""
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def is_kept(key: Sequence[int], node: int, channel: int, width: int, p: float) -> bool:
    """Whether dropout keeps a feature: by one random bit per channel where p is a half, by sixteen bits otherwise."""
    bits = 1 if p == 0.5 else 16
    per_word = 32 // bits
    word = node * -(-width // per_word) + channel // per_word
    low, high = (part & 0xFFFFFFFF for part in key)
    random = lowbias32(lowbias32(word ^ low) ^ high) >> bits * (channel % per_word) & (1 << bits) - 1
    return random >= round(p * 2**bits)
