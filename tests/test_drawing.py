"""The page of `anydml inspect --html`: what is embedded in it, and what it does in a browser."""

import html
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import anydml
from anydml.drawing import DrawnGraph, DrawnNode, Page
from anydml.inspection import drawn
from demo.speech import model_path
from tests.browser import needs_browser, opened, said_by
from tests.test_inspect import LOOP, TEXT

HERE = Path(anydml.__file__).parent


def page_of(model, title="model.onnx"):
    return drawn(onnx.parser.parse_model(model) if isinstance(model, str) else model, title)[1]


def embedded(page):
    return json.loads(
        re.search(r'<script id="data" type="application/json">\n?(.*?)</script>', page, re.DOTALL)[1]
    )


# ---- what is embedded ----------------------------------------------------------------------------------


def test_the_page_needs_no_network():
    page = page_of(TEXT)
    assert not re.findall(
        r"(?:src|href)\s*=|url\(|@import|sourceMappingURL|https?://(?!www\.w3\.org/2000/svg)", page
    )
    assert "{{" not in page.partition('<script id="data"')[0]


def test_dagre_comes_whole_and_with_its_licence():
    vendored = (HERE / "vendor" / "dagre.min.js").read_text(encoding="utf-8")
    licence = (HERE / "vendor" / "dagre.LICENSE").read_text(encoding="utf-8")
    page = page_of(TEXT)
    assert vendored.rpartition("//# sourceMappingURL")[0] in page
    assert "dagre.layout(graph)" in page
    assert licence.strip() in page


def test_what_the_page_is_told():
    held = embedded(page_of(TEXT))
    assert held.keys() == Page.__annotations__.keys()
    assert held["facts"].startswith("7 nodes, 2 Ifs, opset ai.onnx 17, ")
    outer = held["graph"]["nodes"][-1]
    assert (outer["op"], outer["condition"], outer["reads"]) == ("If", "Equal(k, 7)", ["d", "c", "x"])
    assert outer["branches"]["then"]["inputs"] == [["c", "bool[]"], ["x", "float32[n,3]"]]
    assert held["graph"]["nodes"][0]["inputs"][1] == ["seven", "int64[] = 7"]

    def walk(graph):
        assert graph.keys() == DrawnGraph.__annotations__.keys()
        for node in graph["nodes"]:
            assert node.keys() == DrawnNode.__annotations__.keys()
            for inner in node["branches"].values():
                walk(inner)

    walk(held["graph"])


def test_values_of_one_name_are_told_apart():
    """In the file both branches call their result the same."""
    text = TEXT.replace("p = If (c)", "r = If (c)").replace("(float[n, 3] p)", "(float[n, 3] r)")
    text = text.replace("(float[m, 3] q) { q", "(float[m, 3] r) { r")
    branches = embedded(page_of(text))["graph"]["nodes"][-1]["branches"]
    first, second = (b["outputs"][0][0] for b in branches.values())
    assert first != second


@pytest.mark.parametrize("evil", ["</script><script>document.title='broken'</script>", "{{style}} <!--"])
def test_names_cannot_leave_the_data(evil):
    model = onnx.parser.parse_model(TEXT)
    model.graph.node[-1].name = evil
    page = page_of(model, evil)
    assert "</script><script>document" not in page
    assert page.count("</script>") == page_of(TEXT).count("</script>")
    assert embedded(page)["title"] == evil
    assert f"<title>{html.escape(evil)}</title>" in page


def test_its_files_can_be_read_in_one_sitting():
    for path in (HERE / "page").iterdir():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


# ---- in a browser --------------------------------------------------------------------------------------

HELP = """
const all = s => [...document.querySelectorAll(s)], shown = s => all(s).filter(e => e.offsetParent);
const at = e => { const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
const inside = e => { const [x, y] = at(e), m = main.getBoundingClientRect();
  return x > m.left && x < m.right && y > m.top && y < m.bottom; };
const key = k => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true }));
const node = text => shown(".node, .toggle").find(e => e.textContent.includes(text));
const find = text => { $("search").value = text; search(text); };
"""


def driven(tmp_path, page, script, **window):
    """What a script says of the page, which may use what HELP defines."""
    return said_by(page, HELP + script, tmp_path / "driven.html", tmp_path / "profile", **window)


@needs_browser
def test_branches_open_side_by_side(tmp_path):
    said = driven(
        tmp_path,
        page_of(model_path()),
        """
        said.before = shown(".node, .control").length;
        const toggle = all(".toggle")[0];
        toggle.click();
        said.open = shown(".node, .control").length;
        said.words = shown(".word").map(e => e.textContent);
        const [then, other] = shown(".branch").map(e => e.getBoundingClientRect());
        said.aside = then.right <= other.left && Math.abs(then.top - other.top) < 2;
        said.expanded = toggle.getAttribute("aria-expanded");
        said.details = $("details").textContent;
        toggle.click();
        said.closed = shown(".node, .control").length;
        $("all").click();
        said.controls = shown(".control").length;
        $("none").click();
        said.none = shown(".node, .control").length;""",
    )
    assert said["before"] == said["closed"] == said["none"] == 9
    assert said["open"] > 100
    assert said["words"][:2] == ["then: 172 nodes", "else: 172 nodes"]
    assert said["aside"]
    assert said["expanded"] == "true"
    assert "then uses from outsideinput float32[?,?]state float32[2,?,128]" in said["details"]
    assert said["controls"] == 25


LAID_OUT = """
const placed = (e, home) => { const r = e.getBoundingClientRect(), b = home.getBoundingClientRect();
  return [(r.left - b.left) / seen.scale, (r.top - b.top) / seen.scale,
    (r.right - b.left) / seen.scale, (r.bottom - b.top) / seen.scale]; };
said.graphs = shown(".graph").map(g => [...views.values()].find(n => n.home.element === g)?.home).filter(Boolean)
  .map(view => ({ plain: view.plain, size: [view.element.offsetWidth, view.element.offsetHeight],
    boxes: view.nodes.map(n => placed(n.element, view.element)),
    lines: view.lines.map(l => [l.from, l.to, l.path.getAttribute("d").match(/-?[\\d.]+(?:e-?\\d+)?/g).map(Number),
      l.start === undefined || l.start === null,
      view.nodes.length > 500 ? [] : [...Array(50).keys()].map(k => l.path.getPointAtLength(k / 50 * l.path.getTotalLength()))
        .map(p => [p.x, p.y])]) }));
"""


def check_layout(graphs):
    """No node on another nor outside; each line goes from the foot of a node to the top of a lower one, through none."""
    for graph in graphs:
        boxes = np.array(graph["boxes"])
        assert boxes.min() > -1
        assert (boxes[:, 2:].max(axis=0) < np.array(graph["size"]) + 2).all()
        left, top, right, bottom = boxes.T
        apart = (right[:, None] <= left + 1) | (left[:, None] >= right - 1)
        apart |= (bottom[:, None] <= top + 1) | (top[:, None] >= bottom - 1)
        assert (apart | np.eye(len(boxes), dtype=bool)).all()
        for start, end, numbers, whole, points in graph["lines"]:
            tip_x, _, tip_y = numbers[-9:-6]  # the last curve ends, and goes straight down; an arrow follows
            assert left[end] <= tip_x <= right[end]
            assert abs(tip_y - top[end]) < 1.5
            assert top[end] > bottom[start]
            if whole:
                assert left[start] <= numbers[0] <= right[start]
                assert abs(numbers[1] - bottom[start]) < 1.5
            x, y = np.array(points).reshape(-1, 2, 1).transpose(1, 0, 2)
            within = (x > left + 2) & (x < right - 2) & (y > top + 2) & (y < bottom - 2)
            assert not within.any()


DATA = Path(__file__).parent / "data"
BESIDE = """<ir_version: 8, opset_import: ["": 17]> m (bool c, float[4] x) => (float[4] y) {
    n = Neg (x)
    b = If (c) <then_branch = t () => (float[4] p) { p1 = Abs (x)  p2 = Exp (p1)  p3 = Log (p2)  p = Neg (p3) },
        else_branch = e () => (float[4] q) { q = Exp (x) }>
    z = Abs (n)  d = Add (b, n)  y = Mul (d, z)
}"""
MODELS = {
    "beside an open If": (onnx.parser.parse_model(BESIDE), 3),
    "silero": (model_path(), 51),
    "loop": (onnx.parser.parse_model(LOOP), 4),
    "nested": (onnx.parser.parse_model(TEXT), 5),
    "long conditions": (DATA / "exporters" / "dy_cond_nested3_dyn" / "model.onnx", 9),
}


@needs_browser
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("size", ["1400,900", "500,800"])
def test_where_nodes_and_lines_lie(tmp_path, model, size):
    """When all is closed, and when all is open."""
    model, count = MODELS[model]
    for script, graphs in (("", 1), ('$("all").click();', count)):
        said = driven(tmp_path, page_of(model), script + LAID_OUT, size=size)["graphs"]
        assert len(said) == graphs
        assert not any(g["plain"] for g in said)
        check_layout(said)


def blocks(count):
    """A model of blocks with a way around each, and one value that all of them read."""
    nodes = [helper.make_node("Neg", ["m"], ["mask"])]
    last = "x"
    for k in range(count):
        nodes += [helper.make_node("Abs", [last], [f"a{k}"]), helper.make_node("Exp", [last], [f"e{k}"])]
        nodes += [helper.make_node("Mul", [f"a{k}", f"e{k}"], [f"p{k}"])]
        nodes += [helper.make_node("Add", [f"p{k}", last], [f"s{k}"])]
        nodes += [helper.make_node("Sub", [f"s{k}", "mask"], [last := f"y{k}"])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in ("x", "m", last)]
    graph = helper.make_graph(nodes, "blocks", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@needs_browser
def test_a_large_graph_is_drawn_in_plain_rows(tmp_path):
    small = driven(tmp_path, page_of(blocks(8)), 'said.note = !$("note").hidden;' + LAID_OUT)
    assert not small["note"]
    check_layout(small["graphs"])
    script = """said.note = !$("note").hidden; said.inputs = shown(".end").slice(0, 2).map(inside);
        said.scale = seen.scale; $("fit").click(); said.fit = [shown(".end").every(inside)];"""
    large = driven(tmp_path, page_of(blocks(1000)), script + LAID_OUT)
    assert large["note"]
    assert (large["inputs"], large["fit"]) == ([True, True], [True])
    assert large["scale"] > 0.5
    (graph,) = large["graphs"]
    assert (graph["plain"], len(graph["boxes"])) == (True, 5004)
    check_layout([graph])


@needs_browser
def test_types_on_lines(tmp_path):
    script = 'said.labels = all("svg text").map(e => [e.firstChild.data, e.lastChild.textContent]);'
    labels = driven(tmp_path, page_of(TEXT), script)["labels"]
    assert ["i64[]", "k: int64[]"] in labels
    assert ["f32[n,3]", "x: float32[n,3]"] in labels
    long = TEXT.replace("n, 3", "a_very_long_symbol, another_one, 3")
    labels = driven(tmp_path, page_of(long), script)["labels"]
    assert ["f32[a_very_long_sym…", "x: float32[a_very_long_symbol,another_one,3]"] in labels


@needs_browser
def test_search_brings_its_find_into_view(tmp_path):
    said = driven(
        tmp_path,
        page_of(model_path()),
        """
        look(9000, 9000, 0.1);
        const told = () => [$("found").textContent, shown(".chosen").map(inside), seen.scale >= 0.6, shown(".hit").length];
        find("lstm");
        said.first = told();
        said.details = $("details").textContent;
        said.open = shown(".control").filter(e => e.querySelector("[aria-expanded=true]")).length;
        $("search").focus();
        key("Enter");
        said.second = told();
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", shiftKey: true, bubbles: true }));
        said.third = told();
        find("no such thing");
        said.none = told();
        $("search").focus();
        key("Escape");
        said.left = [$("search").value, $("found").textContent, document.activeElement.id];""",
    )
    assert said["first"] == said["third"] == ["1 of 4", [True], True, 1]
    assert said["second"] == ["2 of 4", [True], True, 1]
    assert "hidden_size 128" in said["details"]
    assert said["open"] == 2
    assert said["none"][0] == "nothing found"
    assert said["left"] == ["", "", "main"]


@needs_browser
def test_moving_and_zooming(tmp_path):
    """What lies under the pointer stays there."""
    said = driven(
        tmp_path,
        page_of(TEXT),
        """
        const input = shown(".end")[0], start = { ...seen };
        const since = () => [seen.x - start.x, seen.y - start.y];
        const wheel = more => input.dispatchEvent(new WheelEvent("wheel",
          { bubbles: true, cancelable: true, clientX: at(input)[0], clientY: at(input)[1], ...more }));
        main.focus();
        key("ArrowRight"); key("ArrowDown");
        said.arrows = since();
        wheel({ deltaX: 30, deltaY: 7 });
        said.scrolled = since();
        const place = at(input);
        wheel({ deltaY: -5, ctrlKey: true });
        said.pinched = [seen.scale > start.scale, Math.hypot(at(input)[0] - place[0], at(input)[1] - place[1])];
        const scale = seen.scale;
        wheel({ deltaY: 3, deltaMode: 1 });
        said.wheeled = [seen.scale < scale, Math.hypot(at(input)[0] - place[0], at(input)[1] - place[1])];
        const point = (kind, id, x, y, to = main) => to.dispatchEvent(new PointerEvent(kind,
          { bubbles: true, pointerId: id, clientX: x, clientY: y }));
        const before = { ...seen };
        point("pointerdown", 1, 300, 300, input); point("pointermove", 1, 340, 320); point("pointerup", 1, 340, 320);
        said.dragged = [seen.x - before.x, seen.y - before.y];
        const click = () => input.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1 }));
        click();
        said.clicked = shown(".chosen").length;
        click();
        said.again = shown(".chosen").length;
        const apart = seen.scale;
        point("pointerdown", 1, 300, 300); point("pointerdown", 2, 400, 300);
        point("pointermove", 2, 500, 300); point("pointerup", 1, 300, 300); point("pointerup", 2, 500, 300);
        said.fingers = seen.scale / apart;
        const now = seen.scale;
        $("in").click();
        said.larger = seen.scale / now;
        $("out").click();
        said.smaller = seen.scale / now;
        look(5000, 5000, 2);
        key("0");
        said.fit = shown(".node, .control").every(inside);""",
    )
    assert said["arrows"] == [-60, -60]
    assert said["scrolled"] == [-90, -67]
    assert said["pinched"][0]
    assert said["wheeled"][0]
    assert max(said["pinched"][1], said["wheeled"][1]) < 0.5
    assert said["dragged"] == [40, 20]
    assert (said["clicked"], said["again"]) == (0, 1)  # the click that ends a drag chooses nothing
    assert said["fingers"] == pytest.approx(2)
    assert (said["larger"], said["smaller"]) == (pytest.approx(1.25), pytest.approx(1))
    assert said["fit"]


@needs_browser
def test_a_window_that_changes(tmp_path):
    """What nobody moved stays in the middle."""
    script = """
        document.body.style.width = "700px";
        dispatchEvent(new Event("resize"));
        const apart = () => { const ends = shown(".node, .control").map(e => boxOf(e));
          return Math.min(...ends.map(e => e.left)) + Math.max(...ends.map(e => e.right)) - main.clientWidth; };
        said.apart = apart();
        move(50, 0);
        dispatchEvent(new Event("resize"));
        said.moved = apart();"""
    said = driven(tmp_path, page_of(TEXT), script)
    assert abs(said["apart"]) < 2
    assert said["moved"] == pytest.approx(said["apart"] + 100)


@needs_browser
def test_keys_and_ways_through_values(tmp_path):
    said = driven(
        tmp_path,
        page_of(TEXT),
        """
        said.tabs = [...main.querySelectorAll("button")].filter(e => e.tabIndex >= 0 && e.offsetParent).length;
        look(9000, 9000, 1);
        const outer = node("If y");
        outer.focus({ focusVisible: true });
        said.focused = inside(outer);
        outer.click();
        const inner = node("If p");
        inner.click();
        const neg = node("Neg");
        neg.focus();
        neg.click();
        said.links = all(".link").map(e => [e.textContent, e.title]);
        said.lines = all("path.on").length;
        all(".link")[0].click();
        said.went = [$("details").querySelector("h2").textContent, shown(".chosen").map(inside)];
        neg.focus();
        key("Escape");
        said.first = [inner.getAttribute("aria-expanded"), document.activeElement === inner];
        key("Escape");
        said.second = [outer.getAttribute("aria-expanded"), document.activeElement === outer];
        key("Escape");
        said.third = shown(".chosen").length;
        key("/");
        said.searching = document.activeElement.id;""",
    )
    assert said["tabs"] == 6
    assert said["focused"]
    assert said["lines"] == 2
    assert said["links"] == [["x", "made by the outside: show it"]]
    assert said["went"] == ["input", [True]]
    assert said["first"] == ["false", True]
    assert said["second"] == ["false", True]
    assert said["third"] == 0
    assert said["searching"] == "search"


@needs_browser
def test_a_loops_body(tmp_path):
    said = driven(
        tmp_path,
        page_of(LOOP),
        'node("Loop y").click(); said.words = shown(".word").map(e => e.textContent); said.details = $("details").textContent;',
    )
    assert said["words"] == ["body: 4 nodes"]
    assert (
        "body is giveni int64[]k bool[...]s float32[3]body uses from outsidew float32[3]" in said["details"]
    )


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", ["1400,900", "500,800"])
def test_themes_and_windows(tmp_path, dark, size):
    """The page has the browser's theme, and another at once; nothing sticks out of the window."""
    said = driven(
        tmp_path,
        page_of(model_path()),
        """
        const shade = () => getComputedStyle(document.body).backgroundColor;
        said.theme = document.documentElement.dataset.theme;
        said.shades = [shade()];
        $("theme").click();
        said.shades.push(shade());
        said.inputs = shown(".end").every(inside);
        node("Equal").click();
        said.out = all("header *, aside *, #zoom *").filter(e => e.offsetParent
          && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)).map(e => e.outerHTML);
        said.aside = $("details").offsetHeight > 50;
        said.wide = document.documentElement.scrollWidth <= innerWidth;""",
        size=size,
        dark=dark,
    )
    assert said["theme"] == ("dark" if dark else "light")
    assert len(set(said["shades"])) == 2
    assert said["out"] == []
    assert said["aside"]
    assert said["wide"]
    assert said["inputs"]


@needs_browser
def test_on_paper(tmp_path):
    """A page as wide as paper, or narrower, whatever part of it was seen; as many pages as it takes."""
    page = page_of(model_path()).replace(
        "</html>", '<script>$("all").click(); look(9000, 9000, 0.05);</script></html>'
    )
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    opened(
        tmp_path / "page.html",
        tmp_path / "profile",
        f"--print-to-pdf={tmp_path / 'page.pdf'}",
        "--no-pdf-header-footer",
    )
    paper = (tmp_path / "page.pdf").read_bytes()
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == 1
    assert len(paper) > 100_000
