from __future__ import annotations

from typing import Any

import pytest

from oddnode.cli.shared import parse_settings


@pytest.mark.parametrize(
    ("method", "text", "name", "value"),
    [
        ("nodesafe", "num_hops=2", "num_hops", 2),
        ("nodesafe", "eta=1e-3", "eta", 0.001),
        ("nodesafe", " eta = 1 ", "eta", 1.0),
        ("nodesafe", "propagation=as-given", "propagation", "as-given"),
        ("nodesafe++", "m_in=-5", "m_in", -5.0),
        ("nodesafe++", "m_in=None", "m_in", None),
        ("gpn", "uncertainty=epistemic", "uncertainty", "epistemic"),
        ("msp", "ensemble=3", "ensemble", 3),
    ],
)
def test_a_value_has_the_type_of_its_setting(method: str, text: str, name: str, value: Any) -> None:
    read = parse_settings([text], [method])
    assert read == {name: value}
    assert type(read[name]) is type(value)


@pytest.mark.parametrize(
    ("method", "text", "message"),
    [
        ("nodesafe", "num_hops", "--set num_hops: expected a name and a value, like num_hops=2"),
        ("nodesafe", "num_hops=2.5", "--set num_hops=2.5: expected an integer"),
        ("nodesafe", "eta=", "--set eta=: expected a number"),
        ("nodesafe", "eta=nan", "--set eta=nan: expected a finite number"),
        ("nodesafe", "eta=none", "--set eta=none: expected a number"),
        ("nodesafe++", "m_in=x", "--set m_in=x: expected a number or none"),
        ("nodesafe", "epochs=0", "--set epochs=0: expected an integer, 1 or more"),
        ("nodesafe", "propagation=off", "--set propagation=off: expected auto or as-given"),
        ("nodesafe", "num_hop=2", "unknown setting of nodesafe 'num_hop'. Did you mean 'num_hops'"),
        ("msp", "num_hops=2", "unknown setting of msp 'num_hops'"),
        ("msp", "seed=1", "unknown setting of msp 'seed'"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        parse_settings([text], [method])


def test_a_setting_is_given_once() -> None:
    with pytest.raises(ValueError, match="eta is set twice"):
        parse_settings(["eta=0.5", "eta=0.1"], ["nodesafe"])


def test_of_several_methods_one_must_have_a_setting() -> None:
    assert parse_settings(["num_hops=2", "k=4"], ["msp", "knn", "gnnsafe"]) == {"num_hops": 2, "k": 4}
    with pytest.raises(ValueError, match="unknown setting 'm_in'"):
        parse_settings(["m_in=1"], ["msp", "gnnsafe"])
