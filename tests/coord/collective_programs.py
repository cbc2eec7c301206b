"""Random programs of collectives with what each device must get: any operation, type, reduction, group mode, form of groups,
asynchronous or not, with work between start and done, of several operands, in loops (whose count a collective may say), calls and
branches.  Values are small integers, so that every order of a sum gives the same."""
import random

GRIDS = (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (8, 1), (1, 3), (1, 4), (2, 2), (3, 2), (2, 3), (2, 4), (4, 2)
INTEGERS = {'s4': (4, True), 'u4': (4, False), 's8': (8, True), 'u8': (8, False), 's16': (16, True), 'u16': (16, False),
            's32': (32, True), 'u32': (32, False), 's64': (64, True), 'u64': (64, False)}
FLOATS = 'f32', 'f64', 'bf16', 'f16', 'f8e4m3fn', 'f8e5m2'
COMPLEX = 'c64', 'c128'
ROOM = 400 # elements


def wrap(v, dtype):
  if dtype not in INTEGERS:
    return v
  bits, signed = INTEGERS[dtype]
  v &= (1 << bits) - 1
  return v - (1 << bits) if signed and v >> (bits - 1) else v


# reduction: the model, and the body of its computation (T: the scalar type)
REDUCTIONS = {
    'add': (lambda a, b: a + b, 'ROOT r = T add(a, b)'),
    'multiply': (lambda a, b: a * b, 'ROOT r = T multiply(a, b)'),
    'maximum': (max, 'ROOT r = T maximum(a, b)'),
    'minimum': (min, 'ROOT r = T minimum(b, a)'),
    'and': (lambda a, b: a & b, 'ROOT r = T and(a, b)'),
    'or': (lambda a, b: a | b, 'ROOT r = T or(a, b)'),
    'xor': (lambda a, b: a ^ b, 'ROOT r = T xor(a, b)'),
    # a reducer of the user's, with a constant of its own
    'sum modulo 7': (lambda a, b: (a + b) % 7, 's = T add(a, b) k = T constant(7) ROOT r = T remainder(s, k)'),
}


def reductions_of(dtype, size):
  if dtype == 'pred':
    return ['and', 'or', 'xor']
  if dtype in COMPLEX:
    return ['add', 'multiply'] if size <= 6 else ['add']
  if dtype in FLOATS:
    return ['maximum', 'minimum', 'multiply'] + (['add'] if dtype != 'f8e5m2' or size <= 4 else [])
  return ['add', 'multiply', 'maximum', 'minimum', 'and', 'or', 'xor'] + (['sum modulo 7'] if INTEGERS[dtype][0] > 8 else [])


class Program:

  def __init__(self, seed):
    self.rng = random.Random(seed)
    self.replicas, self.partitions = self.rng.choice(GRIDS)
    self.devices = self.replicas * self.partitions
    self.computations, self.lines, self.count = [], [], 0
    self.keeps_shape, self.asides = False, []
    self.roots = []
    self.want = [[] for _ in range(self.devices)] # by device: its results, lists of integers
    self.lines += ['rid = u32[] replica-id()', 'pid = u32[] partition-id()', 'r32 = s32[] convert(rid)', 'p32 = s32[] convert(pid)',
                   f'np = s32[] constant({self.partitions})', 'rn = s32[] multiply(r32, np)', 'dev = s32[] add(rn, p32)']
    for _ in range(self.rng.choice((1, 2))): # independent of each other: their cliques cross
      self.chain()
    shapes = ', '.join(shape for _, shape in self.roots)
    self.lines.append(f'ROOT out = ({shapes}) tuple({", ".join(name for name, _ in self.roots)})')
    self.text = (f'HloModule random_{seed}, replica_count={self.replicas}, num_partitions={self.partitions}\n' +
                 '\n'.join(self.computations) + '\nENTRY e {\n  ' + '\n  '.join(self.lines) + '\n}\n')

  # ---- writing ----

  def name(self, stem='v'):
    self.count += 1
    return f'{stem}{self.count}'

  def shape(self, dtype=None, dims=None):
    return f'{dtype or self.dtype}[{",".join(map(str, self.dims if dims is None else dims))}]'

  def op(self, lines, shape, text, stem='v'):
    name = self.name(stem)
    lines.append(f'{name} = {shape} {text}')
    return name

  def scalar(self, lines, value, dims=None):
    c = self.op(lines, 's32[]', f'constant({value})')
    return self.op(lines, self.shape('s32', dims), f'broadcast({c}), dimensions={{}}')

  def from_s32(self, lines, v):
    """Integers 1 and 2 as values of the type."""
    if self.dtype == 'pred':
      return self.op(lines, self.shape(), f'compare({v}, {self.scalar(lines, 1)}), direction=NE')
    if self.dtype in COMPLEX:
      part = 'f32' if self.dtype == 'c64' else 'f64'
      re = self.op(lines, self.shape(part), f'convert({v})')
      three = self.scalar(lines, 3)
      rest = self.op(lines, self.shape('s32'), f'subtract({three}, {v})')
      im = self.op(lines, self.shape(part), f'convert({rest})')
      return self.op(lines, self.shape(), f'complex({re}, {im})')
    return v if self.dtype == 's32' else self.op(lines, self.shape(), f'convert({v})')

  def value(self, v):
    return bool(v != 1) if self.dtype == 'pred' else complex(v, 3 - v) if self.dtype in COMPLEX else v

  def to_s32(self, lines, x):
    if self.dtype not in COMPLEX:
      return x if self.dtype == 's32' else self.op(lines, self.shape('s32'), f'convert({x})')
    part = 'f32' if self.dtype == 'c64' else 'f64'
    parts = []
    for which in 'real', 'imag':
      p = self.op(lines, self.shape(part), f'{which}({x})')
      parts.append(self.op(lines, self.shape('s32'), f'convert({p})'))
    scaled = self.op(lines, self.shape('s32'), f'multiply({parts[0]}, {self.scalar(lines, 1000)})')
    return self.op(lines, self.shape('s32'), f'add({scaled}, {parts[1]})')

  def number(self, v):
    v = int(v.real) * 1000 + int(v.imag) if isinstance(v, complex) else int(v)
    return wrap(v, 's32')

  def normalise(self, lines, x):
    """After a reduction: 1 and 2 again."""
    if self.dtype == 'pred':
      return x
    v = self.to_s32(lines, x)
    odd = self.op(lines, self.shape('s32'), f'and({v}, {self.scalar(lines, 1)})')
    return self.from_s32(lines, self.op(lines, self.shape('s32'), f'add({odd}, {self.scalar(lines, 1)})'))

  def normal(self, v):
    return v if self.dtype == 'pred' else self.value((self.number(v) & 1) + 1)

  # ---- groups ----

  def groups(self, reduces, even):
    """(text, lists of devices)."""
    rng, R, P = self.rng, self.replicas, self.partitions
    mode = rng.choice('RBF' if reduces else 'RP')
    ids = {'R': R, 'B': R, 'P': P, 'F': R * P}[mode]
    size = rng.choice([s for s in range(1, ids + 1) if ids % s == 0])
    form = rng.choice(('list', 'iota', 'transposed') + (('all',) if mode != 'F' else ()) + (() if even else ('uneven',)))
    order = list(range(ids))
    if form == 'uneven' and ids < 3:
      form, size = 'list', 1
    if form == 'all':
      groups, text = [order], '{}'
    elif form == 'uneven':
      rng.shuffle(order)
      cut = rng.randrange(1, ids - 1)
      groups = [order[:cut], order[cut:]]
    elif form == 'list':
      rng.shuffle(order)
      groups = [order[i:i + size] for i in range(0, ids, size)]
    else:
      text = f'[{ids // size},{size}]<=[{ids}]'
      if form == 'transposed':
        a = rng.choice([s for s in range(1, ids + 1) if ids % s == 0])
        b = ids // a
        order = [i * b + j for j in range(b) for i in range(a)]
        text = f'[{ids // size},{size}]<=[{a},{b}]T(1,0)'
      groups = [order[i:i + size] for i in range(0, ids, size)]
    if form in ('uneven', 'list'):
      text = '{' + ','.join('{' + ','.join(map(str, g)) + '}' for g in groups) + '}'
    text = f'replica_groups={text}'
    if mode != 'R':
      text += f', channel_id={self.count + 1}' + (', use_global_device_ids=true' if mode == 'F' else '')
    if mode == 'R':
      found = [[i * P + p for i in g] for p in range(P) for g in groups]
    elif mode == 'P':
      found = [[r * P + i for i in g] for r in range(R) for g in groups]
    elif mode == 'B':
      found = [[i * P + p for i in g for p in range(P)] for g in groups]
    else:
      found = groups
    return text, found

  def pairs(self):
    """(text, may be a channel of send and recv, pairs of devices): every source and every target once."""
    rng, R, P = self.rng, self.replicas, self.partitions
    by_replica = rng.random() < 0.5
    n = R if by_replica else P
    sources, targets = rng.sample(range(n), n), rng.sample(range(n), n)
    ids = list(zip(sources, targets))[:rng.randrange(n + 1)]
    if by_replica:
      found = [(a * P + p, b * P + p) for a, b in ids for p in range(P)]
    else:
      found = [(r * P + a, r * P + b) for a, b in ids for r in range(R)]
    text = '{' + ','.join(f'{{{a},{b}}}' for a, b in ids) + '}'
    return text, by_replica, found

  # ---- operations: lines that make the result from x, its dimensions, and the model ----

  def meanwhile(self, lines, x):
    """Work between a start and its done."""
    if lines is self.lines and self.rng.random() < 0.5:
      self.asides.append((self.to_s32(lines, x), self.shape('s32')))

  def wrapped(self, lines, kind, x, attributes, dims):
    """The operation as one instruction, in an async-start of its own, or with another operand."""
    rng, mine, result = self.rng, self.shape(), self.shape(dims=dims)
    form = rng.random()
    if form < 0.4:
      return self.op(lines, result, f'{kind}({x}), {attributes}')
    if form < 0.6 and kind != 'all-to-all': # whose tuple form is another operation
      t = self.op(lines, f'({result}, {result})', f'{kind}({self.ones(lines)}, {x}), {attributes}')
      return self.op(lines, result, f'get-tuple-element({t}), index=1')
    c = self.name('asynchronous')
    self.computations.append(f'{c} {{ a = {mine} parameter(0) ROOT r = {result} {kind}(a), {attributes} }}')
    s = self.op(lines, f'(({mine}), {result}, s32[])', f'async-start({x}), calls={c}')
    self.meanwhile(lines, x)
    return self.op(lines, result, f'async-done({s})')

  def reducer(self, size):
    kind = self.rng.choice(reductions_of(self.dtype, size))
    c = self.name('reducer')
    t = self.dtype + '[]'
    self.computations.append(f'{c} {{ a = {t} parameter(0) b = {t} parameter(1) {REDUCTIONS[kind][1].replace("= T ", f"= {t} ")} }}')
    return c, REDUCTIONS[kind][0]

  def fold(self, f, values):
    total = values[0]
    for v in values[1:]:
      total = wrap(f(total, v), self.dtype)
    return total

  def all_reduce(self, lines, x):
    text, groups = self.groups(True, False)
    c, f = self.reducer(max(map(len, groups)))
    attributes = f'{text}, to_apply={c}'
    if self.rng.random() < 0.3:
      s = self.op(lines, self.shape(), f'all-reduce-start({x}), {attributes}')
      self.meanwhile(lines, x)
      y = self.op(lines, self.shape(), f'all-reduce-done({s})')
    elif self.rng.random() < 0.3: # together with another
      t = self.op(lines, f'({self.shape()}, {self.dtype}[2])', f'all-reduce({x}, {self.extra}), {attributes}')
      y = self.op(lines, self.shape(), f'get-tuple-element({t}), index=0')
    else:
      y = self.wrapped(lines, 'all-reduce', x, attributes, self.dims)
    def model(data):
      out = [None] * self.devices
      for g in groups:
        sums = [self.normal(self.fold(f, [data[d][i] for d in g])) for i in range(len(data[g[0]]))]
        for d in g:
          out[d] = sums
      return out
    return self.normalise(lines, y), self.dims, model

  def collective_broadcast(self, lines, x):
    text, groups = self.groups(False, False)
    root = 0
    if self.rng.random() < 0.3: # one that is computed
      root = self.rng.randrange(min(map(len, groups)))
      r = self.row_of_table(lines, [[root]] * self.devices, 's32')
      y = self.op(lines, self.shape(), f'collective-broadcast({x}, {r}), {text}, has_dynamic_root=true')
    else:
      y = self.wrapped(lines, 'collective-broadcast', x, text, self.dims)
    def model(data):
      out = [None] * self.devices
      for g in groups:
        for d in g:
          out[d] = data[g[root]]
      return out
    return y, self.dims, model

  def collective_permute(self, lines, x):
    text, by_replica, pairs = self.pairs()
    channel = '' if by_replica else f', channel_id={self.count + 1}'
    form = self.rng.choice(('plain', 'start', 'send'))
    if form == 'send' and (not by_replica or self.partitions == 1):
      # an id of its own: send and recv of a channel are one transfer
      tail = f'channel_id={0 if by_replica else self.count + 1}, frontend_attributes={{_xla_send_recv_source_target_pairs="{text}"}}'
      token = self.op(lines, 'token[]', 'after-all()')
      r = self.op(lines, f'({self.shape()}, u32[], token[])', f'recv({token}), {tail}')
      s = self.op(lines, f'({self.shape()}, u32[], token[])', f'send({x}, {token}), {tail}')
      self.meanwhile(lines, x)
      done = self.op(lines, f'({self.shape()}, token[])', f'recv-done({r}), {tail.split(", ")[0]}')
      self.op(lines, 'token[]', f'send-done({s}), {tail.split(", ")[0]}')
      y = self.op(lines, self.shape(), f'get-tuple-element({done}), index=0')
    elif form == 'start':
      s = self.op(lines, f'({self.shape()}, {self.shape()})', f'collective-permute-start({x}), source_target_pairs={text}{channel}')
      self.meanwhile(lines, x)
      y = self.op(lines, self.shape(), f'collective-permute-done({s})')
    else:
      y = self.op(lines, self.shape(), f'collective-permute({x}), source_target_pairs={text}{channel}')
    nothing = False if self.dtype == 'pred' else 0
    def model(data):
      out = [[nothing] * len(data[0]) for _ in range(self.devices)]
      for a, b in pairs:
        out[b] = data[a]
      return out
    return y, self.dims, model

  def along(self, data, dims, dim, pieces):
    """Cuts an array into pieces along a dimension."""
    rows, columns = dims
    out = []
    for k in range(pieces):
      r0, r1, c0, c1 = (rows // pieces * k, rows // pieces * (k + 1), 0, columns) if dim == 0 else \
          (0, rows, columns // pieces * k, columns // pieces * (k + 1))
      out.append([data[r * columns + c] for r in range(r0, r1) for c in range(c0, c1)])
    return out

  def joined(self, parts, dims, dim):
    """Arrays of `dims`, one after the other along a dimension."""
    if dim == 0:
      return [v for p in parts for v in p]
    return [v for r in range(dims[0]) for p in parts for v in p[r * dims[1]:(r + 1) * dims[1]]]

  def all_gather(self, lines, x):
    text, groups = self.groups(True, True)
    dim, size, old = self.rng.randrange(2), len(groups[0]), list(self.dims)
    dims = list(old)
    dims[dim] *= size
    if dims[0] * dims[1] > ROOM:
      return None
    attributes = f'{text}, dimensions={{{dim}}}'
    if self.rng.random() < 0.4:
      s = self.op(lines, f'({self.shape()}, {self.shape(dims=dims)})', f'all-gather-start({x}), {attributes}')
      self.meanwhile(lines, x)
      y = self.op(lines, self.shape(dims=dims), f'all-gather-done({s})')
    else:
      y = self.wrapped(lines, 'all-gather', x, attributes, dims)
    def model(data):
      out = [None] * self.devices
      for g in groups:
        for d in g:
          out[d] = self.joined([data[e] for e in g], old, dim)
      return out
    return y, dims, model

  def reduce_scatter(self, lines, x):
    text, groups = self.groups(True, True)
    dim, size, old = self.rng.randrange(2), len(groups[0]), list(self.dims)
    if old[dim] % size:
      return None
    dims = list(old)
    dims[dim] //= size
    c, f = self.reducer(size)
    y = self.wrapped(lines, 'reduce-scatter', x, f'{text}, dimensions={{{dim}}}, to_apply={c}', dims)
    self.dims = dims
    y = self.normalise(lines, y)
    def model(data):
      out = [None] * self.devices
      for g in groups:
        sums = [self.normal(self.fold(f, [data[d][i] for d in g])) for i in range(len(data[g[0]]))]
        for d, part in zip(g, self.along(sums, old, dim, size)):
          out[d] = part
      return out
    return y, dims, model

  def all_to_all(self, lines, x):
    text, groups = self.groups(False, True)
    dim, size, dims = self.rng.randrange(2), len(groups[0]), list(self.dims)
    if dims[dim] % size:
      return None
    y = self.wrapped(lines, 'all-to-all', x, f'{text}, dimensions={{{dim}}}', dims)
    part = list(dims)
    part[dim] //= size
    def model(data):
      out = [None] * self.devices
      for g in groups:
        cut = [self.along(data[d], dims, dim, size) for d in g]
        for k, d in enumerate(g):
          out[d] = self.joined([c[k] for c in cut], part, dim)
      return out
    return y, dims, model

  def ragged_all_to_all(self, lines, x):
    """Rows of one array to rows of another: each pair of a group has pieces of its own size, read from anywhere, written side by
    side in any order, with rows between them that stay what they were."""
    rng = self.rng
    text, groups = self.groups(False, True)
    (rows, columns), size, updates = self.dims, len(groups[0]), rng.choice((1, 1, 2))
    taken = rows if self.keeps_shape else rng.choice((rows, rows + 3, max(rows - 1, 0), 2 * rows))
    if taken * columns > ROOM or taken * size > 4 * ROOM:
      return None
    pieces = [] # sender, receiver, which, where it is read, rows, where it is written
    table = [[[0] * (size * updates) for _ in range(self.devices)] for _ in range(4)]
    for g in groups:
      for receiver in g:
        order = [(s, u) for s in range(size) for u in range(updates)]
        rng.shuffle(order)
        at = 0
        for s, u in order:
          at += rng.choice((0, 0, 1))
          n = rng.randrange(max(0, min(rows, taken - at)) + 1) if rng.random() < 0.8 else 0
          sender, start = g[s], rng.randrange(rows - n + 1)
          where = at if n else 0
          there, here = g.index(receiver) * updates + u, s * updates + u
          table[0][sender][there], table[1][sender][there], table[2][sender][there] = start, n, where
          table[3][receiver][here] = n
          pieces.append((sender, receiver, start, n, where))
          at += n
    type = rng.choice(('s32', 's64', 'u32', 'u64'))
    lists = [self.row_of_table(lines, t, type) for t in table]
    if updates > 1 and rng.random() < 0.5:
      lists = [self.op(lines, f'{type}[{size},{updates}]', f'reshape({v})') for v in lists]
    over = taken == rows and rng.random() < 0.3 # what it writes over is what it reads
    out = x if over else self.ones(lines, [taken, columns])
    y = self.op(lines, self.shape(dims=[taken, columns]), f'ragged-all-to-all({x}, {out}, {", ".join(lists)}), {text}')
    one = True if self.dtype == 'pred' else complex(1, 0) if self.dtype in COMPLEX else 1
    def model(data):
      out = [list(data[d]) if over else [one] * (taken * columns) for d in range(self.devices)]
      for sender, receiver, start, n, where in pieces:
        out[receiver][where * columns:(where + n) * columns] = data[sender][start * columns:(start + n) * columns]
      return out
    return y, [taken, columns], model

  # ---- programs ----

  def inside(self, make, lines, x):
    """`make` in lines of another computation, where the shape stays."""
    outer, self.extra = (self.extra, self.keeps_shape), self.extra_in(lines)
    self.keeps_shape = True
    made = make(lines, x)
    self.extra, self.keeps_shape = outer
    return made

  def agreed(self, lines, value):
    """A number that the compiler cannot know, the same on every device: the greatest of the devices' numbers."""
    c = self.name('greater')
    self.computations.append(f'{c} {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] maximum(a, b) }}')
    mine = self.row_of_table(lines, [[value if d == self.devices - 1 else -1] for d in range(self.devices)], 's32')
    v = self.op(lines, 's32[]', f'reshape({mine})')
    if self.partitions == 1:
      return self.op(lines, 's32[]', f'all-reduce({v}), replica_groups={{}}, to_apply={c}')
    groups = '{{' + ','.join(map(str, range(self.devices))) + '}}'
    return self.op(lines, 's32[]', f'all-reduce({v}), replica_groups={groups}, channel_id={self.count + 1}, use_global_device_ids=true, to_apply={c}')

  def in_loop(self, make, x):
    """The same in a loop; where the shape stays."""
    body = []
    s = f'(s32[], {self.shape()}, s32[])'
    names = [self.name('body'), self.name('more')]
    p = self.op(body, s, 'parameter(0)')
    i = self.op(body, 's32[]', f'get-tuple-element({p}), index=0')
    v = self.op(body, self.shape(), f'get-tuple-element({p}), index=1')
    k = self.op(body, 's32[]', f'get-tuple-element({p}), index=2')
    made = self.inside(make, body, v)
    one = self.op(body, 's32[]', 'constant(1)')
    n = self.op(body, 's32[]', f'add({i}, {one})')
    body.append(f'ROOT t = {s} tuple({n}, {made[0]}, {k})')
    self.computations.append(f'{names[0]} {{\n  ' + '\n  '.join(body) + '\n}')
    self.computations.append(f'{names[1]} {{ p = {s} parameter(0) i = s32[] get-tuple-element(p), index=0 k = s32[] get-tuple-element(p), index=2 '
                             'ROOT c = pred[] compare(i, k), direction=LT }')
    return names, made

  def enter_loop(self, lines, names, x, trips):
    zero = self.op(lines, 's32[]', 'constant(0)')
    k = self.agreed(lines, trips) if self.rng.random() < 0.4 else self.op(lines, 's32[]', f'constant({trips})')
    s = f'(s32[], {self.shape()}, s32[])'
    t = self.op(lines, s, f'tuple({zero}, {x}, {k})')
    w = self.op(lines, s, f'while({t}), condition={names[1]}, body={names[0]}')
    return self.op(lines, self.shape(), f'get-tuple-element({w}), index=1')

  def in_computation(self, make):
    """A computation that applies the operation to an array of this shape."""
    body, c = [], self.name('part')
    x = self.op(body, self.shape(), 'parameter(0)')
    made = self.inside(make, body, x)
    body.append(f'ROOT r = {self.shape()} copy({made[0]})')
    self.computations.append(f'{c} {{\n  ' + '\n  '.join(body) + '\n}')
    return c, made

  def in_branch(self, lines, x, makes):
    """A branch of several, all devices the same."""
    parts = [self.in_computation(make) for make in makes]
    taken = self.rng.randrange(len(parts))
    which = self.agreed(lines, taken)
    branches, operands = ', '.join(c for c, _ in parts), ', '.join([x] * len(parts))
    if len(parts) == 2 and self.rng.random() < 0.5:
      zero = self.op(lines, 's32[]', 'constant(0)')
      first = self.op(lines, 'pred[]', f'compare({which}, {zero}), direction=EQ')
      y = self.op(lines, self.shape(), f'conditional({first}, {operands}), true_computation={parts[0][0]}, false_computation={parts[1][0]}')
    else:
      y = self.op(lines, self.shape(), f'conditional({which}, {operands}), branch_computations={{{branches}}}')
    return y, self.dims, parts[taken][1][2]

  def ones(self, lines, dims=None):
    c = self.op(lines, f'{self.dtype}[]', 'constant(' + ('true' if self.dtype == 'pred' else '(1, 0)' if self.dtype in COMPLEX else '1') + ')')
    return self.op(lines, self.shape(dims=dims), f'broadcast({c}), dimensions={{}}')

  def extra_in(self, lines):
    return self.ones(lines, [2])

  def device_in(self, lines):
    """The device's number, wherever it is asked for."""
    ids = []
    for which in 'replica-id()', 'partition-id()':
      u = self.op(lines, 'u32[]', which)
      ids.append(self.op(lines, 's32[]', f'convert({u})'))
    p = self.op(lines, 's32[]', f'constant({self.partitions})')
    first = self.op(lines, 's32[]', f'multiply({ids[0]}, {p})')
    return self.op(lines, 's32[]', f'add({first}, {ids[1]})')

  def row_of_table(self, lines, rows, type):
    """rows[device], a list of numbers of one of the integer types that offsets may have."""
    n = len(rows[0])
    text = ', '.join('{' + ', '.join(map(str, r)) + '}' for r in rows)
    t = self.op(lines, f'{type}[{len(rows)},{n}]', f'constant({{{text}}})')
    d, zero = self.device_in(lines), self.op(lines, 's32[]', 'constant(0)')
    r = self.op(lines, f'{type}[1,{n}]', f'dynamic-slice({t}, {d}, {zero}), dynamic_slice_sizes={{1,{n}}}')
    return self.op(lines, f'{type}[{n}]', f'reshape({r})')

  def step(self, lines, x):
    """One operation, perhaps in a loop, and that loop perhaps in another one."""
    kinds = [self.all_reduce, self.collective_broadcast, self.collective_permute, self.all_to_all, self.ragged_all_to_all]
    form, fitting = self.rng.random(), [k for k in kinds if self.fits(k)]
    if form < 0.3:
      make, trips, deep = self.rng.choice(fitting), self.rng.randrange(4), self.rng.random() < 0.4
      names, made = self.in_loop(make, x)
      total = trips
      if deep:
        inner, times = names, self.rng.randrange(1, 3)
        names, _ = self.in_loop(lambda body, v: (self.enter_loop(body, inner, v, trips), self.dims, None), x)
        total, trips = trips * times, times
      def model(data, once=made[2]):
        for _ in range(total):
          data = once(data)
        return data
      return self.enter_loop(lines, names, x, trips), self.dims, model
    if form < 0.4:
      c, made = self.in_computation(self.rng.choice(fitting))
      return self.op(lines, self.shape(), f'call({x}), to_apply={c}'), self.dims, made[2]
    if form < 0.55:
      return self.in_branch(lines, x, [self.rng.choice(fitting) for _ in range(self.rng.choice((2, 2, 3)))])
    return self.rng.choice(kinds + [self.all_gather, self.reduce_scatter])(lines, x)

  def fits(self, make):
    """All-to-all may not fit the shape, by its groups."""
    if make not in (self.all_to_all, self.ragged_all_to_all):
      return True
    if make == self.ragged_all_to_all:
      return self.dims[0] * self.devices <= 4 * ROOM and self.dims[0] * self.dims[1] <= ROOM
    return all(d % n == 0 for d in self.dims for n in range(1, self.devices + 1) if self.replicas % n == 0 or self.partitions % n == 0)

  def chain(self):
    rng, n = self.rng, self.devices
    self.dtype = rng.choice(list(INTEGERS) + list(FLOATS) * 2 + ['pred', 'c64', 'c128'])
    self.dims = [rng.choice((n, 2 * n, n, 1, 6, 0)), rng.choice((n, 1, 4, 3 * n // 2))]
    lines = self.lines
    self.extra = self.extra_in(lines)
    size = self.dims[0] * self.dims[1]
    flat = self.op(lines, f's32[{size}]', 'iota(), iota_dimension=0')
    i = self.op(lines, self.shape('s32'), f'reshape({flat})')
    d = self.op(lines, self.shape('s32'), 'broadcast(dev), dimensions={}')
    a = self.op(lines, self.shape('s32'), f'multiply({i}, {self.scalar(lines, 5)})')
    b = self.op(lines, self.shape('s32'), f'multiply({d}, {self.scalar(lines, 3)})')
    h = self.op(lines, self.shape('s32'), f'add({a}, {b})')
    half = self.op(lines, self.shape('s32'), f'divide({h}, {self.scalar(lines, 2)})')
    e = self.op(lines, self.shape('s32'), f'add({h}, {half})')
    odd = self.op(lines, self.shape('s32'), f'and({e}, {self.scalar(lines, 1)})')
    v = self.op(lines, self.shape('s32'), f'add({odd}, {self.scalar(lines, 1)})')
    x = self.from_s32(lines, v)
    data = []
    for device in range(n):
      hs = [5 * k + 3 * device for k in range(size)]
      data.append([self.value((((q + q // 2) & 1) + 1)) for q in hs])
    for _ in range(rng.randrange(1, 6)):
      self.asides = []
      made = self.step(lines, x)
      for name, shape in self.asides: # x as numbers
        self.give(name, shape, data)
      if made is None:
        continue
      x, dims, model = made
      data = model(data)
      self.dims = list(dims)
    self.give(self.to_s32(lines, x), self.shape('s32'), data)

  def give(self, name, shape, data):
    """A result of the program."""
    self.roots.append((name, shape))
    for device in range(self.devices):
      self.want[device].append([self.number(v) for v in data[device]])
