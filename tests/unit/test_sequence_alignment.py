from __future__ import annotations

import time

import pytest

from etprof.analysis.compare.sequence_alignment import align

PRODUCTS = frozenset({"product"})


def pairs(first: str, second: str) -> list[tuple[int, int]]:
    return align(first.split(), second.split(), unmistakable=PRODUCTS)


def test_what_only_one_side_has_is_left_out() -> None:
    assert pairs("convert product add", "product add") == [(1, 0), (2, 1)]
    assert pairs("product add", "product clamp add") == [(0, 0), (1, 2)]


def test_unlike_entries_between_certain_pairs_are_paired_by_order() -> None:
    assert pairs("product invalid add", "product hardswish add") == [(0, 0), (1, 1), (2, 2)]


def test_a_product_is_never_paired_with_anything_else() -> None:
    assert pairs("add product add", "add clamp add") == [(0, 0), (2, 2)]


def test_repetitions_stay_in_their_places() -> None:
    # GIVEN ten equal layers, in the first of which an operator goes by another name
    layer = "product mean product product add divide multiply"
    names = " ".join([layer.replace("mean", "reduce"), *[layer] * 9])
    kinds = " ".join([layer] * 10)
    # THEN every operator is paired with its own, where the longest common block would shift them
    assert pairs(names, kinds) == [(index, index) for index in range(70)]


@pytest.mark.slow
def test_a_thousand_operators_take_a_second_or_two() -> None:
    kinds = ["product", "add", "clamp", "mean"] * 250
    start = time.process_time()
    assert len(align(kinds, kinds[:-3], unmistakable=PRODUCTS)) == 997
    assert time.process_time() - start < 10
