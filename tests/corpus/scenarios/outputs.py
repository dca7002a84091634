"""Outputs of cells."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "outputs: print",
        "name = 'x'",
        """
        print('a', name, sep='-', end='!')
        print()
        print('é', [1, None], {'k': 1.5})
        """,
    ),
    Scenario(
        "outputs: stderr and stdout",
        "import sys",
        """
        print('out 1')
        print('err', file=sys.stderr)
        n = sys.stdout.write('out 2\\n')
        """,
    ),
    Scenario(
        "outputs: a warning",
        "import warnings",
        """
        warnings.warn('careful')
        x = 1
        """,
        "print(x)",
    ),
    Scenario(
        "outputs: a carriage return",
        "",
        """
        for i in range(3):
            print(f'\\r{i}', end='')
        print()
        """,
    ),
    Scenario(
        "outputs: the last expression",
        "x = 20",
        "x * 2 + 2",
        "print(_, Out[2])",
    ),
    Scenario(
        "outputs: the last expression is None",
        "xs = [3, 1]",
        "xs.sort()",
        "print(xs)",
    ),
    Scenario(
        "outputs: the last expression ends with a semicolon",
        "x = 20",
        "x * 2;",
        "print(Out)",
    ),
    Scenario(
        "outputs: the last expression is an object of the notebook",
        "xs = [1]",
        """
        xs.append(2)
        xs
        """,
        "print(_ is xs, Out[2] is xs)",
    ),
    Scenario(
        "outputs: two values, one after the other",
        "x = 1",
        """
        x + 1
        # %%
        x + 2
        """,
        "print(_, __, Out)",
    ),
    Scenario(
        "outputs: the value of the cell before is used",
        "41",
        """
        y = _ + 1
        y
        """,
        "print(y, Out)",
        reported=("_",),
    ),
    Scenario(
        "outputs: a custom repr",
        """
        class P:
            n = 0
            def __repr__(self):
                self.n += 1
                return f'<P {self.n}>'
        p = P()
        """,
        "p",
        "print(p.n)",
    ),
    Scenario(
        "outputs: rich representations",
        """
        class R:
            def _repr_html_(self): return '<b>r</b>'
            def __repr__(self): return 'r'
        r = R()
        """,
        "r",
        "print(_ is r)",
    ),
    Scenario(
        "outputs: display",
        """
        from IPython.display import HTML, Markdown, display
        class R:
            def _repr_html_(self): return '<b>r</b>'
            def __repr__(self): return 'r'
        """,
        """
        display(1, 'two')
        display(HTML('<i>x</i>'))
        display(R())
        x = 3
        """,
        "print(x)",
    ),
    Scenario(
        "outputs: HTML as the value",
        "from IPython.display import HTML",
        """
        h = HTML('<i>x</i>')
        h
        """,
        "print(h.data, _ is h)",
    ),
    Scenario(
        "outputs: a frame as the value",
        """
        import pandas as pd
        df = pd.DataFrame({'a': [1, 2]})
        """,
        "df.describe()",
        "print(len(_), len(df))",
    ),
    Scenario(
        "outputs: a long list as the value",
        "",
        "list(range(1500))",
        "print(len(_))",
    ),
    Scenario(
        "outputs: a nested value",
        "",
        "{'a': [1, (2, 3)], 'b': {'c': None}}",
        "print(_['a'])",
    ),
    Scenario(
        "outputs: a function of the notebook prints",
        """
        def show(x):
            print('showing', x)
            return x
        """,
        """
        y = show(1)
        show(2)
        """,
        "print(y, _)",
    ),
    Scenario(
        "outputs: an error after prints",
        "",
        """
        print('before')
        raise ValueError('no')
        """,
        "print('after')",
        raises=("ValueError",),
    ),
    Scenario(
        "outputs: an error with several arguments",
        "",
        "raise OSError(2, 'gone', 'file.txt')",
        raises=("FileNotFoundError",),
    ),
    Scenario(
        "outputs: redirect_stdout",
        """
        import io
        from contextlib import redirect_stdout
        buf = io.StringIO()
        """,
        """
        with redirect_stdout(buf):
            print('caught')
        print('not caught')
        """,
        "print(repr(buf.getvalue()))",
    ),
    Scenario(
        "outputs: a figure over two cells",
        """
        %matplotlib inline
        import matplotlib.pyplot as plt
        fig, ax = plt.subplots()
        plt.close(fig)
        """,
        """
        line, = ax.plot([1, 2], [3, 4], label='a')
        ax.set_title('t');
        """,
        """
        print(ax.figure is fig, fig.axes[0] is ax, len(ax.lines), ax.get_title(), line.axes is ax)
        ax.set_xlabel('x')
        print(fig.axes[0].get_xlabel())
        """,
    ),
    Scenario(
        "outputs: a figure is made in the cell",
        """
        %matplotlib inline
        import matplotlib.pyplot as plt
        """,
        """
        fig, ax = plt.subplots()
        ax.plot([1, 2, 3]);
        """,
        """
        print(ax.figure is fig, len(fig.axes))
        ax.set_title('later')
        print(fig.axes[0].get_title())
        """,
    ),
    Scenario(
        "outputs: a figure of the notebook is saved in the cell",
        """
        %matplotlib inline
        import matplotlib.pyplot as plt
        fig, axes = plt.subplots(1, 2)
        plt.close(fig)
        """,
        """
        for i, a in enumerate(axes):
            a.bar([0, 1], [i, i + 1])
        del a
        fig.savefig('{place}/f.svg')
        """,
        """
        import os
        print(os.path.exists('{place}/f.svg'), axes[0] is fig.axes[0], len(axes[1].patches))
        os.remove('{place}/f.svg')
        """,
    ),
    Scenario(
        "outputs: print is replaced",
        """
        lines = []
        def print(*args): lines.append(args)
        """,
        "print('kept')",
        """
        import builtins
        builtins.print(lines)
        del print
        """,
    ),
    Scenario(
        "outputs: no output",
        "x = 1",
        "pass",
        "print(x)",
    ),
    Scenario(
        "outputs: a comment and a docstring",
        "",
        """
        '''A text.'''
        # only a comment
        """,
        "print(_)",
    ),
]
