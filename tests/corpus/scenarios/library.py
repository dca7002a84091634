"""Objects of the standard library."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "library: deque",
        """
        from collections import deque
        q = deque([1, 2], maxlen=3)
        same = q
        """,
        """
        q.append(3)
        q.append(4)
        q.rotate(1)
        """,
        "print(q, same is q)",
    ),
    Scenario(
        "library: Counter",
        """
        from collections import Counter
        c = Counter('abca')
        held = [c]
        """,
        """
        c.update('ab')
        top = c.most_common(1)
        """,
        "print(c, top, held[0] is c)",
    ),
    Scenario(
        "library: defaultdict",
        """
        from collections import defaultdict
        d = defaultdict(list)
        nested = defaultdict(lambda: defaultdict(int))
        """,
        """
        d['a'].append(1)
        n = len(d['empty'])
        nested['x']['y'] += 1
        """,
        """
        d['b']
        print(d, n, nested['x']['y'], nested['new']['z'])
        """,
    ),
    Scenario(
        "library: OrderedDict",
        """
        from collections import OrderedDict
        o = OrderedDict(a=1, b=2, c=3)
        same = o
        """,
        """
        o.move_to_end('a')
        o.popitem(last=False)
        """,
        "print(list(same.items()))",
    ),
    Scenario(
        "library: ChainMap and dict views",
        """
        from collections import ChainMap
        a, b = {'x': 1}, {'x': 2, 'y': 3}
        cm = ChainMap(a, b)
        keys = b.keys()
        """,
        """
        cm['z'] = 9
        b['w'] = 4
        """,
        "print(a, cm['w'], list(keys))",
    ),
    Scenario(
        "library: heapq",
        """
        import heapq
        heap = [5, 3, 8]
        heapq.heapify(heap)
        same = heap
        """,
        """
        heapq.heappush(heap, 1)
        least = heapq.heappop(heap)
        """,
        "print(heap, least, same is heap)",
    ),
    Scenario(
        "library: bisect",
        """
        import bisect
        xs = [1, 3, 5]
        ys = xs
        """,
        """
        bisect.insort(xs, 4)
        i = bisect.bisect(xs, 3)
        """,
        "print(ys, i)",
    ),
    Scenario(
        "library: sort, reverse, slice",
        """
        xs = [3, 1, 2]
        ys = xs
        """,
        """
        xs.sort(key=lambda x: -x)
        xs[1:1] = [9, 9]
        xs.reverse()
        """,
        "print(ys)",
    ),
    Scenario(
        "library: bytearray and memoryview",
        """
        raw = bytearray(b'abcdef')
        view = memoryview(raw)[2:4]
        same = raw
        """,
        """
        raw[0] = 65
        raw[2:4] = b'XY'
        """,
        "print(raw, bytes(view), same is raw)",
    ),
    Scenario(
        "library: a memoryview is written to",
        """
        raw = bytearray(b'abcdef')
        view = memoryview(raw)[2:4]
        """,
        "view[0] = 90",
        "print(raw, bytes(view))",
        reported=("view",),
    ),
    Scenario(
        "library: a large bytearray",
        """
        raw = bytearray(1 << 20)
        same = raw
        """,
        """
        raw[7] = 1
        raw.extend(b'end')
        """,
        "print(sum(raw[:10]), len(raw), same is raw)",
    ),
    Scenario(
        "library: sets",
        """
        s, t = {1, 2}, frozenset([2, 3])
        same = s
        """,
        """
        s |= t
        s.discard(1)
        u = s & t
        """,
        "print(sorted(s), same is s, sorted(u))",
    ),
    Scenario(
        "library: objects in a set and as keys",
        """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return self.n
            def __eq__(self, o): return self.n == o.n
        k = K(1)
        s, d = {k}, {k: 'a'}
        """,
        """
        k.extra = 'x'
        d[k] += 'b'
        s.add(K(2))
        """,
        "print(len(s), d[K(1)], [x is k for x in d])",
    ),
    Scenario(
        "library: objects hashed by identity",
        """
        class K: pass
        k = K()
        d = {k: 1}
        s = {k}
        """,
        """
        d[k] += 1
        found = k in s
        """,
        "print(d[k], k in s, found, len(d))",
    ),
    Scenario(
        "library: datetime and zoneinfo",
        """
        import datetime as dt
        from zoneinfo import ZoneInfo
        day = dt.datetime(2024, 5, 1, tzinfo=ZoneInfo('UTC'))
        """,
        """
        later = day + dt.timedelta(days=1)
        days = {day.date(): [later]}
        """,
        "print(later.isoformat(), days)",
    ),
    Scenario(
        "library: Decimal and Fraction",
        """
        from decimal import Decimal
        from fractions import Fraction
        price = Decimal('1.10')
        """,
        """
        price *= 3
        f = Fraction(1, 3) + 1
        """,
        "print(price, f)",
    ),
    Scenario(
        "library: pathlib",
        """
        from pathlib import Path
        p = Path('{place}')
        """,
        """
        q = p / 'sub'
        q.mkdir()
        (q / 'a.txt').write_text('hi')
        names = [x.name for x in q.iterdir()]
        """,
        "print(q == p / 'sub', names, (q / 'a.txt').read_text())",
    ),
    Scenario(
        "library: StringIO",
        """
        import io
        buf = io.StringIO()
        buf.write('a')
        same = buf
        """,
        """
        buf.write('b')
        pos = buf.tell()
        """,
        """
        buf.write('c')
        print(buf.getvalue(), pos, same is buf)
        """,
    ),
    Scenario(
        "library: csv and json",
        """
        import csv, io, json
        text = 'a,b\\n1,2\\n3,4\\n'
        totals = {}
        """,
        """
        for row in csv.DictReader(io.StringIO(text)):
            for k, v in row.items():
                totals[k] = totals.get(k, 0) + int(v)
        as_json = json.dumps(totals)
        """,
        "print(totals, as_json, row)",
    ),
    Scenario(
        "library: array",
        """
        import array
        a = array.array('d', [1.0, 2.0])
        same = a
        """,
        """
        a.append(3.0)
        a[0] = 9.0
        """,
        "print(a, same is a)",
    ),
    Scenario(
        "library: regular expressions",
        """
        import re
        pattern = re.compile(r'(\\w)=(\\d)')
        found = {}
        """,
        """
        for m in pattern.finditer('a=1 b=2'):
            found[m[1]] = int(m[2])
        del m
        """,
        "print(found)",
    ),
    Scenario(
        "library: SimpleQueue and Queue",
        """
        import queue
        q = queue.Queue()
        q.put(1)
        """,
        "n = q.get()",
        "print(n, q.qsize())",
        reported=("q",),
    ),
    Scenario(
        "library: a database",
        """
        import sqlite3

        class Store:
            def __init__(self):
                self.db = sqlite3.connect(":memory:")
            def __del__(self):
                self.db.close()

        store = Store()
        """,
        "store.db.execute('create table t (x)')",
        "print(store.db.execute('select count(*) from sqlite_master').fetchone())",
        reported=("store",),
    ),
    Scenario(
        "library: logging",
        """
        import logging
        logger = logging.getLogger('corpus')
        records = []
        """,
        """
        logger.setLevel(logging.DEBUG)
        level = logger.level
        """,
        """
        print(level, logging.getLogger('corpus').level)
        logger.setLevel(0)
        """,
        reported=("logger",),
    ),
    Scenario(
        "library: contextvars",
        """
        import contextvars
        var = contextvars.ContextVar('var', default=0)
        """,
        """
        var.set(5)
        v = var.get()
        """,
        "print(v, var.get())",
        reported=("var",),
    ),
    Scenario(
        "library: struct, hashlib and uuid",
        """
        import hashlib, struct, uuid
        h = hashlib.sha256(b'a')
        """,
        """
        digest = hashlib.sha256(b'ab').hexdigest()
        packed = struct.pack('<i', 7)
        u = uuid.UUID(int=5)
        """,
        "print(digest[:8], packed, u)",
    ),
    Scenario(
        "library: copy and deepcopy",
        """
        import copy
        a = [[1], [2]]
        a.append(a[0])
        """,
        "b, c = copy.copy(a), copy.deepcopy(a)",
        """
        a[0].append(9)
        print(b[0] is a[0], c, c[0] is c[2])
        """,
    ),
    Scenario(
        "library: types and typing values",
        """
        from types import MappingProxyType
        d = {'a': 1}
        ro = MappingProxyType(d)
        """,
        """
        d['b'] = 2
        n = len(ro)
        """,
        "print(n, ro['b'])",
        reported=("ro",),
    ),
    Scenario(
        "library: a linked list of 300 nodes",
        """
        class L:
            def __init__(self, v, next=None): self.v, self.next = v, next
        head = None
        for i in range(300):
            head = L(i, head)
        last = head
        while last.next: last = last.next
        """,
        """
        last.v = 'end'
        n = 0
        at = head
        while at:
            n, at = n + 1, at.next
        """,
        """
        print(n, last.v)
        at = head
        while at.next: at = at.next
        print(at is last)
        """,
    ),
    Scenario(
        "library: a graph of dictionaries",
        """
        graph = {n: {'out': [], 'mark': False} for n in 'abc'}
        for a, b in ('ab', 'bc', 'ca'):
            graph[a]['out'].append(graph[b])
        start = graph['a']
        """,
        """
        def visit(node):
            if not node['mark']:
                node['mark'] = True
                return 1 + sum(visit(n) for n in node['out'])
            return 0
        count = visit(start)
        """,
        "print(count, [v['mark'] for v in graph.values()], graph['c']['out'][0] is start)",
    ),
]
