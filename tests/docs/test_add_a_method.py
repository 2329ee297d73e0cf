from __future__ import annotations

import re
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.mark.usefixtures("own_registries")
def test_the_page_runs_and_its_methods_detect(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(_PAGE), "exec", dont_inherit=True), names)
    printed = [float(number) for number in re.findall(r"AUROC ([\d.]+)", capsys.readouterr().out)]
    assert len(printed) == 5
    assert min(printed) > 80
