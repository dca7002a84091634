"""Names that a cell reads, binds, changes and deletes."""

import pytest

from skyward.errors import UsageError
from skyward_jupyter.cells.cell import CellCode, analyse, transform_cell

pytestmark = pytest.mark.unit


def look(source: str) -> CellCode:
    return analyse(transform_cell(source))


@pytest.mark.parametrize(
    ("source", "captures"),
    [
        ("x = y + 1", "y"),
        ("x = 1\nx + y", "y"),
        ("x += 1", "x"),
        ("df['a'] = 1", "df"),
        ("df.a.b[0].c = v", "v df"),
        ("df['a'] += w", "df w"),
        ("del x", "x"),
        ("print(x)", "x"),
        ("a = b = c", "c"),
        ("a, *b = c", "c"),
        ("x: T = y", "T y"),
        ("x: int", ""),
        ("lambda a, *b, c=d, **e: a + b + c + e + f", "d f"),
        ("[x for x in xs if x > y]", "xs y"),
        ("{k: v for k, v in d.items()}", "d"),
        ("sum(x for y in ys for x in y)", "ys"),
        ("[y := x for x in xs]\ny", "xs y"),
        ("(n := 3) + n", ""),
        ("def f(a, b=c): return a + b + d + e\ne = 1\nf(1)", "c d"),
        ("def f(): return data\ndata = load()\nf()", "load"),
        ("def f(): return data\nf()\ndata = 1", "data"),
        ("def f(): return data", ""),
        ("def f(): return g()\ndef g(): return h\nf()", "h"),
        ("@deco\ndef f(): return x", "deco x"),
        ("def f():\n    x = 1\n    def g(): return x + y\n    return g\nf()", "y"),
        ("def f():\n    global n\n    n += 1\nf()", "n"),
        ("def f(x: T) -> U: ...", "T U"),
        ("def f[T](x: T) -> T: return x\nf(y)", "y"),
        ("class A(B, metaclass=M):\n    x = y\n    z = x\n    def m(self): return w", "B M y w"),
        ("class A:\n    def m(self): return w", ""),
        ("class A:\n    def m(self): return w\nA()", "w"),
        ("class A:\n    x = x", "x"),
        ("class A[T]:\n    x: T\nA()", ""),
        ("class A[T](B[T], metaclass=M[T]): pass", "B M"),
        ("class A[*T, **P](B[*T, P]): pass\nT", "B T"),
        ("@d\nclass A[T](B):\n    class C[U](D[T, U]): pass", "d B D"),
        ("type X[T: B] = list[T]\nX", "B"),
        ("for i in xs: t = i + k", "xs k"),
        ("for i in xs: pass\nelse: z\ni", "xs z i"),
        ("while c: x = 1\nx", "c x"),
        ("if c: x = 1\nx", "c x"),
        ("if c: x = 1\nelse: x = 2\nx", "c"),
        ("if c: raise E\nelse: x = 2\nx", "c E"),
        ("x = a if b else c", "b a c"),
        ("a and b or c", "a b c"),
        ("a < b < c", "a b c"),
        ("try: x = f()\nexcept E as e: y = e\nx\ny", "f E x y"),
        ("try: x = 1\nfinally: x\nx", "x"),
        ("try: x = 1\nexcept* E: x = 2\nx", "E"),
        ("with a as b, c: b.d", "a c"),
        ("import os\nos.environ", ""),
        ("import a.b as c, d.e\nc, d", ""),
        ("from m import x as y, z\ny, z", ""),
        (
            "match p:\n    case {'k': v, **rest}: v, rest\n    case [a, *b] | A(a, x=b): a\n    case C.D as z if g: z",
            "p A C g",
        ),
        ("match p:\n    case 1: x = 1\n    case _: x = 2\nx", "p"),
        ("type X = list[Y]\nx: X = z", "Y z"),
        ("f'{x!r:>{w}} {y=}'", "x w y"),
        ("await f(x)", "f x"),
        ("async for i in s: i\nasync with c as d: d", "s c"),
        ("yield x\nyield from ys", "x ys"),
        ("!echo {name} $other $$HOME {n + 1}", "name other n"),
        ("out = !ls $folder", "folder"),
        ("sum = 1\nsum", ""),
        ("global x\nx = 1", ""),
        ("x = 1\ndel x\nx", "x"),
        ("def f(): return f()\nf()", ""),
        ("", ""),
    ],
)
def test_names_read_before_they_are_bound_are_captured(source: str, captures: str) -> None:
    assert sorted(look(source).captures) == sorted(captures.split())


@pytest.mark.parametrize(
    ("source", "assigned"),
    [
        ("x = y", "x"),
        ("a, (b, *c) = d", "a b c"),
        ("a = b = 1", "a b"),
        ("x += 1", "x"),
        ("x: int = 1", "x"),
        ("x: int", ""),
        ("import os.path, json as j\nfrom m import a as b, c", "os j b c"),
        ("def f(): z = 1", "f"),
        ("async def f(): ...", "f"),
        ("class A: z = 1", "A"),
        ("for i, j in x: k = 1", "i j k"),
        ("with a as b, c as (d, e): ...", "b d e"),
        ("(n := 3)", "n"),
        ("[m := x for x in y]", "m"),
        ("try: ...\nexcept E as e: ...", "e"),
        ("match p:\n    case {'k': v, **rest}: ...\n    case [a, *b] as w: ...", "v rest a b w"),
        ("def f():\n    global n\n    n = 1", "f n"),
        ("df['x'] = 1", "df"),
        ("df.loc[0, 'x'] = 1", "df"),
        ("a.b.c = 1", "a"),
        ("a.b += 1", "a"),
        ("del a['k']", "a"),
        ("f(x).y = 1", ""),
        ("type X = int", "X"),
        ("x", ""),
        ("a[0], b.c, d = e", "a b d"),
        ("for a['i'] in x: ...", "a"),
        ("with open('f') as a.file: ...", "a"),
    ],
)
def test_bound_names_are_distinguished_from_item_assignments(source: str, assigned: str) -> None:
    code = look(source)
    assert sorted({*code.assigned, *code.changes}) == sorted(assigned.split())


@pytest.mark.parametrize(
    ("source", "incidental"),
    [
        ("with open('f') as f, a: b = f", "f"),
        ("for i, (j, *k) in x: n = i", "i j k"),
        ("for i in x: i = 1", ""),
        ("for i in x: ...\ndef i(): ...", ""),
        ("for a.b in x: ...", ""),
        ("with a as b:\n    for c in b: d = c", "b c"),
    ],
)
def test_names_bound_by_loops_and_contexts_are_incidental(source: str, incidental: str) -> None:
    assert sorted(look(source).incidental) == sorted(incidental.split())


@pytest.mark.parametrize(
    ("source", "deletes"),
    [("del x", "x"), ("del a, (b, c)", "a b c"), ("try: ...\nexcept E as e: ...", "e"), ("del x[0]", "")],
)
def test_deleted_names_are_found(source: str, deletes: str) -> None:
    assert sorted(look(source).deletes) == sorted(deletes.split())


@pytest.mark.parametrize(
    ("source", "unbound"),
    [
        ("x", "x"),
        ("y = x", "x"),
        ("x\nx = 1", ""),  # bound on some path
        ("if x: y", "x"),
        ("a and b", "a"),
        ("try: x\nexcept NameError: ...", ""),
        ("with s: x", "s"),
        ("[x for y in z]", "z"),
        ("lambda: x", ""),
        ("def f(): return x\nf()", ""),
        ("exec('x = 1')\nx", ""),
        ("from m import *\nx", ""),
        ("for i in xs: y", "xs"),
        ("raise E\nx", "E"),
    ],
)
def test_names_certainly_read_before_binding_are_found(source: str, unbound: str) -> None:
    assert [name for name, _ in look(source).unbound] == unbound.split()


def test_builtins_are_not_captured_but_may_be_shadowed() -> None:
    code = look("print(len(x))")
    assert code.captures == ("x",)
    assert code.shadowing == ("print", "len")


@pytest.mark.parametrize(
    ("source", "is_stream", "is_async", "shows"),
    [
        ("yield 1", True, False, False),
        ("for i in x: yield i\ni", True, False, False),
        ("yield await f()", True, True, False),
        ("[i async for i in x]", False, True, True),
        ("await f()", False, True, True),
        ("def f(): yield 1", False, False, False),
        ("lambda: (yield)", False, False, True),
        ("x", False, False, True),
        ("x;", False, False, False),
        ("x;  # quiet", False, False, False),
        ("'a;b'", False, False, True),
        ("x = 1", False, False, False),
        ("if c: x", False, False, False),
    ],
)
def test_stream_async_and_shown_value_are_detected(source: str, is_stream: bool, is_async: bool, shows: bool) -> None:
    code = look(source)
    assert (code.is_stream, code.is_async, code.shows_value) == (is_stream, is_async, shows)


def test_imports_and_definitions_are_found() -> None:
    code = look("import a.b as c\nfrom d import e\ndef f():\n    import g\nclass H: ...")
    assert code.imports == ("a.b", "d", "d.e", "g")
    assert code.definitions == ("c", "e", "f", "H")


def test_narrow_limits_captures_and_outputs() -> None:
    code = look("x = a + b")
    assert code.narrow(inputs=["a"]).captures == ("a",)
    assert code.narrow(capture=False).captures == ()
    assert code.narrow(outputs=["x", "a"]).only == ("x", "a")
    assert code.narrow(without=["a"]).captures == ("b",)
    assert code.narrow() == code


def test_display_magics_are_removed_and_line_numbers_kept() -> None:
    code = analyse(transform_cell("%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\nx"), first_line=2)
    assert code.source == "\npass\npass\nx\n"
    assert code.unbound == (("x", 4),)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "if 1:\n    %lsmagic",
            "line 2: %lsmagic is not available on nodes; run it in a cell without %%sky.",
        ),
        (
            "%%html\n<b>",
            "line 1: %%html is not available on nodes; run it in a cell without %%sky.",
        ),
        (
            "%conda install torch",
            "line 1: %conda is not available on nodes; add packages with `%%sky --pip NAME`.",
        ),
        ("%%time\n\nyield 1", "line 1: code that yields cannot be timed: leave %%time out."),
        ("%time await x", "line 1: code that awaits cannot be timed: leave %time out."),
        (
            "%%time\n%lsmagic",
            "line 2: %lsmagic is not available on nodes; run it in a cell without %%sky.",
        ),
        ("%timeit -o x", "%timeit on a node takes -n N, -r N, -p N and -q, but got -o: leave it out."),
        ("%timeit -n 3", "%timeit has no code to measure: write it after %timeit, or below %%timeit."),
        (
            "%%bash --out lines\nls",
            "%%bash on a node takes only -s and the arguments of the script, but got --out: leave it out; "
            "`lines = !command` gives what a command prints.",
        ),
        (
            "%pip install -r requirements.txt",
            "line 1: %pip in a %%sky cell takes `install` and the names of packages, as `%%sky --pip NAME` does, "
            "but got 'install -r requirements.txt': `!pip ...` runs pip on the node as it is.",
        ),
        ("%%time\n%pip install x", "line 1: %pip is not allowed below %%time: put it in its own cell."),
        (
            "from m import *\nyield 1",
            "line 1: `from m import *` is not allowed in a cell that yields. Import the names that the cell uses.",
        ),
    ],
)
def test_unsupported_code_is_refused_in_one_sentence(source: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        look(source)
    assert str(caught.value) == message


def test_return_is_a_syntax_error_with_a_fix() -> None:
    with pytest.raises(SyntaxError) as caught:
        look("x = 1\nif x:\n    return x")
    assert caught.value.msg == (
        "a cell cannot `return`. End it with the expression to show, or assign the value to a name: "
        "the notebook gets its value."
    )
    assert (caught.value.lineno, caught.value.offset, caught.value.text) == (3, 5, "    return x")


@pytest.mark.parametrize("source", ["a b", "break", "x = = 1", "def f(:", "await = 1"])
def test_syntax_errors_are_raised_by_the_analysis(source: str) -> None:
    with pytest.raises(SyntaxError):
        look(source)


@pytest.mark.parametrize(
    ("source", "captures", "assigned"),
    [
        ("%time x = f(y)", "f y", "x"),
        ("x = %time f(y)", "f y", "x"),
        ("%%time\nx = y\nx + z", "y z", "x"),
        ("%%time\n\ndef g(): return y\ng()", "y", "g"),
        ("%%time\n%time x = y", "y", "x"),
        ("a = 1\n%time b = a + y", "y", "a b"),
        ("%timeit -n 3 x = f(y)", "f y", ""),
        ("%timeit for i in y: f(i)", "f y", ""),
        ("%%timeit -r 2 a = y\nf(a)", "f y", ""),
        ("%cd {folder}", "folder", ""),
        ("%env A=$value", "value", ""),
        ("%%writefile {name}.txt\n{other}", "name", ""),
        ("%%bash -s {a}\necho $b {c}", "a", ""),
    ],
)
def test_names_in_magics_are_found(source: str, captures: str, assigned: str) -> None:
    code = look(source)
    assert sorted(code.captures) == sorted(captures.split())
    assert sorted(code.assigned) == sorted(assigned.split())


def test_missing_name_below_a_magic_is_reported_with_its_line() -> None:
    assert analyse(transform_cell("%%time\n\nmissing"), first_line=2).unbound == (("missing", 4),)


def test_imports_below_a_magic_are_found() -> None:
    assert look("%%time\nimport mine.part").imports == ("mine.part",)


def test_pip_install_requests_packages_and_keeps_line_numbers() -> None:
    code = look("%pip install -q 'torch>=2' numpy\nx\n%pip install numpy -U six")
    assert code.packages == ("torch>=2", "numpy", "six")
    assert code.source == "pass\nx\npass\n"


@pytest.mark.parametrize("source", ["%time a b", "%%time\nx = = 1", "%timeit a b", "%%timeit x y\n1"])
def test_syntax_error_after_a_magic_is_raised_by_the_analysis(source: str) -> None:
    with pytest.raises(SyntaxError):
        look(source)
