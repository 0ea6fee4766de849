"""What notebooks show: well-formed, escaped, labelled, readable without seeing it."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

import nnapi_prof as np_
from nnapi_prof.reports import notebook

NASTY = '<script>alert("1")</script>&'


class Reader(HTMLParser):
    """Checks that elements nest, and keeps what matters of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1], []).append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


def check(text: str) -> Reader:
    result = Reader(text)
    assert not {"script", "style", "img", "link", "iframe"} & {tag for tag, _ in result.seen}
    assert len(result.tags("table")) == len(result.texts["caption"]) > 0
    assert all(head.get("scope") in ("col", "row") for head in result.tags("th"))
    regions = [div for div in result.tags("div") if div.get("role") == "region"]
    assert len(regions) == len(result.tags("table"))
    assert all(region["aria-label"] and region["tabindex"] == "0" for region in regions)
    assert not any(name.startswith("on") for _, attrs in result.seen for name in attrs)
    return result


@pytest.mark.parametrize("step", ["model", "costs", "planned", "result"])
def test_every_step_shows_itself(way, step):
    shown = getattr(way, step)
    result = check(shown._repr_html_())
    if step != "model":
        assert "simulated" in " ".join(result.texts["caption"] + result.texts["th"])
        assert "simulated" in repr(shown)


def test_others_show_themselves(way):
    compared = np_.compare(way.planned, way.result)
    assert "simulated" in " ".join(check(compared._repr_html_()).texts["td"])
    check(np_.devices()._repr_html_())
    assert "simulated" in check(np_.calibrate(way.table, folds=2)._repr_html_()).texts["caption"][0]
    check(np_.Phone.load("pixel4")._repr_html_())
    estimated = np_.estimate(way.model, "pixel4")
    assert "estimated" in check(estimated._repr_html_()).texts["caption"][0]


def test_what_models_and_devices_are_called_is_escaped(way):
    model = replace(way.model, unit_cache=replace(way.model.unit_cache, name=NASTY, notes=(NASTY,)))
    costs = replace(way.costs, model=model, device=NASTY, notes=(NASTY,))
    planned = replace(way.planned, model=model, device=NASTY)
    result = np_.Result(planned, replace(way.result.run, model=NASTY, device=NASTY, notes=(NASTY,)))
    for shown in (model, costs, planned, result):
        assert NASTY in check(shown._repr_html_()).texts["caption"][0]
    assert NASTY in check(model._repr_html_()).texts["li"]


def test_a_table():
    text = notebook.table("t", ("a", "b"), [["x", "1"], ["y", "2"]], numbers=(1,), rest="more")
    result = check(text)
    assert result.texts["td"] == ["1", "2"] and result.texts["p"] == ["more"]
    assert result.texts["th"] == ["a", "b", "x", "y"]
    assert "text-align:right" in str(result.tags("td")[0]["style"])
    assert notebook.ms(None) == "–" and notebook.ms(1_234_567) == "1.235"
    assert notebook.kind_of(True, True) == "ms, simulated, estimated"
