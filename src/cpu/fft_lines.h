/* cpu/fft_lines.h -- the transform itself, for one real type; included by fft.c with REAL, WIDE and NAME(x) defined.
 *
 * `lanes` lines are transformed side by side: element k of line b is at re[k * lanes + b], im[...].  Stockham's
 * self-sorting form: a stage of radix r turns x, seen as [r][m][s], into y, seen as [m][r][s],
 *   y[p][j][q] = w^(p j) sum_k x[k][p][q] exp(-2 pi i j k / r),   w = exp(-2 pi i / (r m))
 * then s grows by r and the rest n / r is next.  The inner loop runs over s * lanes neighbours. */

typedef struct NAME(pair) {
  REAL *re, *im;
} NAME(pair);

/* The vectors in which a prime radix takes neighbours. */
typedef REAL NAME(vec) __attribute__((vector_size(CPU_VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(VEC) = CPU_VECTOR_BYTES / sizeof(REAL) };

static CPU_INLINE void NAME(load)(NAME(vec) * to, const REAL *from, int64_t count)
{
  *to = (NAME(vec)){0};
  if (count == NAME(VEC)) *to = *(const NAME(vec) *)from;
  else
    for (int64_t i = 0; i < count; i++) (*to)[i] = from[i];
}

static CPU_INLINE void NAME(store)(REAL *to, const NAME(vec) * v, int64_t count)
{
  if (count == NAME(VEC)) *(NAME(vec) *)to = *v;
  else
    for (int64_t i = 0; i < count; i++) to[i] = (*v)[i];
}

/* Sums 2 FEW of the r, for `count` neighbours: element j + i and element r - j - i for each i < few. With the sums
 * and differences of the elements k and r - k,
 *   y[j] = m + i t,  y[r - j] = m - i t,
 *   m = x[0] + sum_k cos(2 pi j k / r) sum[k],  t = sum_k -sin(2 pi j k / r) diff[k]
 * over 1 <= k <= r / 2: a quarter of the products of the sum as it stands. */
static CPU_INLINE void NAME(prime_pairs)(int r, int j, int few, int64_t run, int64_t count, const REAL *twiddle,
                                         const NAME(vec) * parts, REAL *yr, REAL *yi, const REAL *roots)
{
  NAME(vec) mr[4], mi[4], tr[4], ti[4];

  CPU_UNROLL
  for (int i = 0; i < few; i++) {
    mr[i] = parts[0], mi[i] = parts[1];
    tr[i] = ti[i] = (NAME(vec)){0};
  }
  for (int k = 1; k <= r / 2; k++) {
    const NAME(vec) *of = parts + 4 * k;
    CPU_UNROLL
    for (int i = 0; i < few; i++) {
      const REAL *root = roots + 2 * ((j + i) * k % r);
      mr[i] += root[0] * of[0];
      mi[i] += root[0] * of[1];
      tr[i] += root[1] * of[2];
      ti[i] += root[1] * of[3];
    }
  }
  CPU_UNROLL
  for (int i = 0; i < few; i++) {
    int of = j + i, back = r - of;
    const REAL *w = twiddle + 2 * of - 2, *wb = twiddle + 2 * back - 2;
    NAME(vec) ar = mr[i] - ti[i], ai = mi[i] + tr[i], br = mr[i] + ti[i], bi = mi[i] - tr[i];
    NAME(vec) turned[4] = {ar * w[0] - ai * w[1], ar * w[1] + ai * w[0],
                           br * wb[0] - bi * wb[1], br * wb[1] + bi * wb[0]};
    NAME(store)(yr + of * run, &turned[0], count);
    NAME(store)(yi + of * run, &turned[1], count);
    NAME(store)(yr + back * run, &turned[2], count);
    NAME(store)(yi + back * run, &turned[3], count);
  }
}

/* A stage of a prime radix, for one p (see the stage). */
static CPU_INLINE void NAME(prime)(int r, int64_t run, int64_t step, const REAL *twiddle, const REAL *xr,
                                   const REAL *xi, REAL *yr, REAL *yi, const REAL *roots)
{
  NAME(vec) parts[2 * LARGEST_PRIME + 2]; /* of each k <= r / 2: real, imaginary part of the sum, of the difference */

  for (int64_t q = 0; q < run; q += NAME(VEC)) {
    int64_t count = WEFT_MIN(NAME(VEC), run - q);
    int j = 1;
    NAME(load)(&parts[0], xr + q, count);
    NAME(load)(&parts[1], xi + q, count);
    NAME(vec) sum[2] = {parts[0], parts[1]}, ar, ai, br, bi;
    for (int k = 1; k <= r / 2; k++) {
      NAME(load)(&ar, xr + q + k * step, count);
      NAME(load)(&ai, xi + q + k * step, count);
      NAME(load)(&br, xr + q + (r - k) * step, count);
      NAME(load)(&bi, xi + q + (r - k) * step, count);
      parts[4 * k] = ar + br, parts[4 * k + 1] = ai + bi, parts[4 * k + 2] = ar - br, parts[4 * k + 3] = ai - bi;
      sum[0] += parts[4 * k], sum[1] += parts[4 * k + 1];
    }
    NAME(store)(yr + q, &sum[0], count);
    NAME(store)(yi + q, &sum[1], count);
    for (; j + 3 <= r / 2; j += 4) NAME(prime_pairs)(r, j, 4, run, count, twiddle, parts, yr + q, yi + q, roots);
    for (; j <= r / 2; j++) NAME(prime_pairs)(r, j, 1, run, count, twiddle, parts, yr + q, yi + q, roots);
  }
}

/* One stage; x and y do not overlap.  run = s * lanes. */
static CPU_HOT void NAME(stage)(int r, int64_t m, int64_t run, const REAL *twiddle, const REAL *restrict xr,
                                const REAL *restrict xi, REAL *restrict yr, REAL *restrict yi, const REAL *roots)
{
  int64_t step = m * run;

  for (int64_t p = 0; p < m; p++, twiddle += 2 * (r - 1), xr += run, xi += run, yr += r * run, yi += r * run) {
    switch (r) {
    case 2:
      CPU_INDEPENDENT
      for (int64_t q = 0; q < run; q++) {
        REAL ar = xr[q], ai = xi[q], br = xr[q + step], bi = xi[q + step], dr = ar - br, di = ai - bi;
        yr[q] = ar + br;
        yi[q] = ai + bi;
        yr[q + run] = dr * twiddle[0] - di * twiddle[1];
        yi[q + run] = dr * twiddle[1] + di * twiddle[0];
      }
      break;
    case 4: {
      REAL w1r = twiddle[0], w1i = twiddle[1], w2r = twiddle[2], w2i = twiddle[3], w3r = twiddle[4], w3i = twiddle[5];
      CPU_INDEPENDENT
      for (int64_t q = 0; q < run; q++) {
        REAL ar = xr[q], ai = xi[q], br = xr[q + step], bi = xi[q + step];
        REAL cr = xr[q + 2 * step], ci = xi[q + 2 * step], dr = xr[q + 3 * step], di = xi[q + 3 * step];
        REAL apcr = ar + cr, apci = ai + ci, amcr = ar - cr, amci = ai - ci;
        REAL bpdr = br + dr, bpdi = bi + di, bmdr = bi - di, bmdi = dr - br; /* -i (b - d) */
        REAL t1r = amcr + bmdr, t1i = amci + bmdi, t2r = apcr - bpdr, t2i = apci - bpdi, t3r = amcr - bmdr,
             t3i = amci - bmdi;
        yr[q] = apcr + bpdr;
        yi[q] = apci + bpdi;
        yr[q + run] = t1r * w1r - t1i * w1i;
        yi[q + run] = t1r * w1i + t1i * w1r;
        yr[q + 2 * run] = t2r * w2r - t2i * w2i;
        yi[q + 2 * run] = t2r * w2i + t2i * w2r;
        yr[q + 3 * run] = t3r * w3r - t3i * w3i;
        yi[q + 3 * run] = t3r * w3i + t3i * w3r;
      }
      break;
    }
    case 3: {
      REAL c = (REAL)-0.5, d = roots[3]; /* of exp(-2 pi i / 3) */
      CPU_INDEPENDENT
      for (int64_t q = 0; q < run; q++) {
        REAL br = xr[q + step], bi = xi[q + step], cr = xr[q + 2 * step], ci = xi[q + 2 * step];
        REAL sr = br + cr, si = bi + ci, er = (br - cr) * d, ei = (bi - ci) * d;
        REAL mr = xr[q] + c * sr, mi = xi[q] + c * si;
        REAL ur = mr - ei, ui = mi + er, vr = mr + ei, vi = mi - er;
        yr[q] = xr[q] + sr;
        yi[q] = xi[q] + si;
        yr[q + run] = ur * twiddle[0] - ui * twiddle[1];
        yi[q + run] = ur * twiddle[1] + ui * twiddle[0];
        yr[q + 2 * run] = vr * twiddle[2] - vi * twiddle[3];
        yi[q + 2 * run] = vr * twiddle[3] + vi * twiddle[2];
      }
      break;
    }
    case 5: {
      REAL c1 = roots[2], d1 = roots[3], c2 = roots[4], d2 = roots[5]; /* of exp(-2 pi i / 5) and its square */
      REAL w1r = twiddle[0], w1i = twiddle[1], w2r = twiddle[2], w2i = twiddle[3];
      REAL w3r = twiddle[4], w3i = twiddle[5], w4r = twiddle[6], w4i = twiddle[7];
      CPU_INDEPENDENT
      for (int64_t q = 0; q < run; q++) {
        REAL s1r = xr[q + step] + xr[q + 4 * step], s1i = xi[q + step] + xi[q + 4 * step];
        REAL e1r = xr[q + step] - xr[q + 4 * step], e1i = xi[q + step] - xi[q + 4 * step];
        REAL s2r = xr[q + 2 * step] + xr[q + 3 * step], s2i = xi[q + 2 * step] + xi[q + 3 * step];
        REAL e2r = xr[q + 2 * step] - xr[q + 3 * step], e2i = xi[q + 2 * step] - xi[q + 3 * step];
        REAL m1r = xr[q] + c1 * s1r + c2 * s2r, m1i = xi[q] + c1 * s1i + c2 * s2i;
        REAL m2r = xr[q] + c2 * s1r + c1 * s2r, m2i = xi[q] + c2 * s1i + c1 * s2i;
        REAL t1r = d1 * e1r + d2 * e2r, t1i = d1 * e1i + d2 * e2i, t2r = d2 * e1r - d1 * e2r, t2i = d2 * e1i - d1 * e2i;
        REAL ar = m1r - t1i, ai = m1i + t1r, br = m2r - t2i, bi = m2i + t2r;
        REAL cr = m2r + t2i, ci = m2i - t2r, er = m1r + t1i, ei = m1i - t1r;
        yr[q] = xr[q] + s1r + s2r;
        yi[q] = xi[q] + s1i + s2i;
        yr[q + run] = ar * w1r - ai * w1i;
        yi[q + run] = ar * w1i + ai * w1r;
        yr[q + 2 * run] = br * w2r - bi * w2i;
        yi[q + 2 * run] = br * w2i + bi * w2r;
        yr[q + 3 * run] = cr * w3r - ci * w3i;
        yi[q + 3 * run] = cr * w3i + ci * w3r;
        yr[q + 4 * run] = er * w4r - ei * w4i;
        yi[q + 4 * run] = er * w4i + ei * w4r;
      }
      break;
    }
    default: NAME(prime)(r, run, step, twiddle, xr, xi, yr, yi, roots);
    }
  }
}

/* a *= table, element k of each line by table[k]; conj: by its conjugate. */
static CPU_HOT void NAME(multiply)(int64_t n, int64_t lanes, NAME(pair) a, const REAL *table)
{
  for (int64_t k = 0; k < n; k++) {
    REAL wr = table[2 * k], wi = table[2 * k + 1], *re = a.re + k * lanes, *im = a.im + k * lanes;
    for (int64_t b = 0; b < lanes; b++) {
      REAL r = re[b] * wr - im[b] * wi;
      im[b] = re[b] * wi + im[b] * wr;
      re[b] = r;
    }
  }
}

/* Transforms a, using b of the same size and, for Bluestein, what follows b;
 * returns which of the two has the result. */
static NAME(pair) NAME(line)(const cpu_fft_line *l, int64_t lanes, NAME(pair) a, NAME(pair) b, REAL *rest)
{
  if (l->inner) {
    int64_t n = l->n, m = l->inner->n, size = m * lanes;
    NAME(pair) c = {rest, rest + size}, d = {rest + 2 * size, rest + 3 * size};
    NAME(multiply)(n, lanes, a, l->chirp);
    memcpy(c.re, a.re, (size_t)(n * lanes) * sizeof(REAL));
    memcpy(c.im, a.im, (size_t)(n * lanes) * sizeof(REAL));
    memset(c.re + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(REAL));
    memset(c.im + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(REAL));
    NAME(pair) spectrum = NAME(line)(l->inner, lanes, c, d, NULL);
    NAME(pair) other = spectrum.re == c.re ? d : c;
    NAME(multiply)(m, lanes, spectrum, l->chirp_spectrum);                        /* the result is divided by m */
    NAME(pair) turned = {spectrum.im, spectrum.re}, spare = {other.im, other.re}; /* swapped parts: the inverse */
    NAME(pair) back = NAME(line)(l->inner, lanes, turned, spare, NULL);
    memcpy(a.re, back.im, (size_t)(n * lanes) * sizeof(REAL));
    memcpy(a.im, back.re, (size_t)(n * lanes) * sizeof(REAL));
    NAME(multiply)(n, lanes, a, l->chirp);
    return a;
  }
  const REAL *twiddle = l->twiddles;
  int64_t rest_n = l->n, s = 1;
  for (int i = 0; i < l->stage_count; i++) {
    int r = l->radix[i];
    int64_t m = rest_n / r;
    const REAL *roots = twiddle + 2 * (r - 1) * m; /* the r-th roots of one follow the stage's factors */
    NAME(stage)(r, m, s * lanes, twiddle, a.re, a.im, b.re, b.im, roots);
    twiddle = roots + 2 * r;
    rest_n = m;
    s *= r;
    NAME(pair) swap = a;
    a = b;
    b = swap;
  }
  return a;
}

/* A complex number of the tables, exp(-2 pi i k / n), computed in the next wider type. */
static void NAME(root)(int64_t k, int64_t n, REAL *to)
{
  WIDE angle = 2 * acosl(-1) * (WIDE)(k % n) / (WIDE)n;

  to[0] = (REAL)cos(angle);
  to[1] = (REAL)-sin(angle);
}

/* The factors that NAME(unzip) and NAME(zip) need for lines of n reals, n even. */
static weft_status *NAME(half_roots)(weft_arena *arena, int64_t n, const void **out)
{
  REAL *to = WEFT_ARENA_ARRAY(arena, REAL, 2 * (n / 4 + 1));

  WEFT_TRY_ALLOC(to);
  *out = to;
  for (int64_t k = 0; k <= n / 4; k++) NAME(root)(k, n, to + 2 * k);
  return NULL;
}

static weft_status *NAME(tables)(weft_arena *arena, cpu_fft_line *l)
{
  int64_t count = 0, rest = l->n;

  for (int i = 0; i < l->stage_count; i++) {
    count += (l->radix[i] - 1) * (rest / l->radix[i]) + l->radix[i];
    rest /= l->radix[i];
  }
  REAL *to = WEFT_ARENA_ARRAY(arena, REAL, 2 * count + 2);
  WEFT_TRY_ALLOC(to);
  l->twiddles = to;
  rest = l->n;
  for (int i = 0; i < l->stage_count; i++) {
    int r = l->radix[i];
    for (int64_t p = 0; p < rest / r; p++)
      for (int j = 1; j < r; j++, to += 2) NAME(root)(p * j, rest, to);
    for (int j = 0; j < r; j++, to += 2) NAME(root)(j, r, to);
    rest /= r;
  }
  return NULL;
}

/* Bluestein's tables, with the spectrum by the inner line's own transform. */
static weft_status *NAME(chirp)(weft_arena *arena, cpu_fft_line *l)
{
  int64_t n = l->n, m = l->inner->n;
  REAL *chirp = WEFT_ARENA_ARRAY(arena, REAL, 2 * n), *spectrum = WEFT_ARENA_ARRAY(arena, REAL, 2 * m);
  REAL *work = WEFT_ARENA_ARRAY(arena, REAL, 4 * m);

  WEFT_TRY_ALLOC(chirp && spectrum && work);
  NAME(pair) a = {work, work + m}, b = {work + 2 * m, work + 3 * m};
  for (int64_t k = 0; k < n; k++) {
    int64_t square = (int64_t)((unsigned __int128)k * (unsigned __int128)k % (unsigned __int128)(2 * n));
    NAME(root)(square, 2 * n, chirp + 2 * k); /* exp(-i pi k^2 / n) */
    a.re[k] = chirp[2 * k];
    a.im[k] = -chirp[2 * k + 1];
    if (k > 0) {
      a.re[m - k] = a.re[k];
      a.im[m - k] = a.im[k];
    }
  }
  NAME(pair) got = NAME(line)(l->inner, 1, a, b, NULL);
  for (int64_t k = 0; k < m; k++) {
    spectrum[2 * k] = got.re[k] / (REAL)m;
    spectrum[2 * k + 1] = got.im[k] / (REAL)m;
  }
  l->chirp = chirp;
  l->chirp_spectrum = spectrum;
  return NULL;
}

/* ---- lines of an array ------------------------------------------------------------------------------------------- */

typedef struct NAME(number) {
  REAL re, im;
} NAME(number);
typedef REAL NAME(eight) __attribute__((vector_size(8 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

static CPU_INLINE void NAME(split)(int64_t count, const NAME(number) * from, REAL *re, REAL *im)
{
  int64_t i = 0;

  for (; i + 8 <= count; i += 8) {
    const NAME(eight) *both = (const void *)(from + i);
    *(NAME(eight) *)(re + i) = __builtin_shufflevector(both[0], both[1], 0, 2, 4, 6, 8, 10, 12, 14);
    *(NAME(eight) *)(im + i) = __builtin_shufflevector(both[0], both[1], 1, 3, 5, 7, 9, 11, 13, 15);
  }
  for (; i < count; i++) {
    re[i] = from[i].re;
    im[i] = from[i].im;
  }
}

static CPU_INLINE void NAME(join)(int64_t count, const REAL *re, const REAL *im, REAL scale, NAME(number) * to)
{
  int64_t i = 0;

  for (; i + 8 <= count; i += 8) {
    NAME(eight)
    r = *(const NAME(eight) *)(re + i) * scale, j = *(const NAME(eight) *)(im + i) * scale, *both = (void *)(to + i);
    both[0] = __builtin_shufflevector(r, j, 0, 8, 1, 9, 2, 10, 3, 11);
    both[1] = __builtin_shufflevector(r, j, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (; i < count; i++) {
    to[i].re = re[i] * scale;
    to[i].im = im[i] * scale;
  }
}

/* Where element 0 of a line is. */
static CPU_INLINE int64_t NAME(line_at)(int64_t line, int64_t n, int64_t inner)
{
  return line / inner * n * inner + line % inner;
}

/* Elements of `lanes` lines into a.  Lines that lie side by side are split as they are; others are turned block by
 * block, so that both sides stay in cache lines. */
static CPU_INLINE void NAME(read_block)(const fft_pass *p, int64_t first, int64_t lanes, int64_t k0, int64_t ks,
                                        NAME(pair) a)
{
  NAME(number) block[TRANSPOSE * LANES];

  for (int64_t lane = 0; lane < lanes; lane++) {
    const NAME(number) *from = (const NAME(number) *)p->in + NAME(line_at)(first + lane, p->in_length, p->inner) +
                               k0 * p->inner;
    for (int64_t k = 0; k < ks; k++) block[k * lanes + lane] = from[k * p->inner];
  }
  NAME(split)(ks * lanes, block, a.re + k0 * lanes, a.im + k0 * lanes);
}

static CPU_INLINE void NAME(read)(const fft_pass *p, int64_t first, int64_t lanes, NAME(pair) a)
{
  const NAME(number) *in = (const NAME(number) *)p->in + NAME(line_at)(first, p->in_length, p->inner);
  int64_t n = p->in_length, k = 0;

  if (p->inner == lanes) return NAME(split)(n * lanes, in, a.re, a.im); /* one line, or all of a few */
  if (first % p->inner + lanes <= p->inner) {
    for (; k < n; k++) NAME(split)(lanes, in + k * p->inner, a.re + k * lanes, a.im + k * lanes);
    return;
  }
  for (; k + TRANSPOSE <= n; k += TRANSPOSE) NAME(read_block)(p, first, lanes, k, TRANSPOSE, a);
  if (k < n) NAME(read_block)(p, first, lanes, k, n - k, a);
}

static CPU_INLINE void NAME(write_block)(const fft_pass *p, int64_t first, int64_t lanes, int64_t k0, int64_t ks,
                                         NAME(pair) a, REAL scale)
{
  NAME(number) block[TRANSPOSE * LANES];

  NAME(join)(ks * lanes, a.re + k0 * lanes, a.im + k0 * lanes, scale, block);
  for (int64_t lane = 0; lane < lanes; lane++) {
    NAME(number) *to = (NAME(number) *)p->out + NAME(line_at)(first + lane, p->out_length, p->inner) + k0 * p->inner;
    for (int64_t k = 0; k < ks; k++) to[k * p->inner] = block[k * lanes + lane];
  }
}

static CPU_INLINE void NAME(write)(const fft_pass *p, int64_t first, int64_t lanes, NAME(pair) a, REAL scale)
{
  NAME(number) *out = (NAME(number) *)p->out + NAME(line_at)(first, p->out_length, p->inner);
  int64_t n = p->out_length, k = 0;

  if (p->inner == lanes) return NAME(join)(n * lanes, a.re, a.im, scale, out);
  if (first % p->inner + lanes <= p->inner) {
    for (; k < n; k++) NAME(join)(lanes, a.re + k * lanes, a.im + k * lanes, scale, out + k * p->inner);
    return;
  }
  for (; k + TRANSPOSE <= n; k += TRANSPOSE) NAME(write_block)(p, first, lanes, k, TRANSPOSE, a, scale);
  if (k < n) NAME(write_block)(p, first, lanes, k, n - k, a, scale);
}

/* n reals are h = n / 2 complex numbers z, even elements their real and odd ones their imaginary parts.  With Z the
 * transform of z, E and O those of the even and the odd elements, and w = exp(-2 pi i / n), for 0 <= k <= h / 2:
 *   Z[k] = E + i O, Z[h - k] = conj(E - i O);   X[k] = E + w^k O, X[h - k] = conj(E - w^k O)
 * unzip makes the half spectrum X[0..h] of Z[0..h), zip goes back; both in place. */
static CPU_INLINE void NAME(unzip)(int64_t h, int64_t lanes, NAME(pair) a, const REAL *w)
{
  for (int64_t k = 0; k <= h / 2; k++, w += 2) {
    REAL *xr = a.re + k * lanes, *xi = a.im + k * lanes, *yr = a.re + (h - k) * lanes, *yi = a.im + (h - k) * lanes;
    const REAL *zr = k ? yr : xr, *zi = k ? yi : xi; /* Z[h] is Z[0] */
    CPU_INDEPENDENT
    for (int64_t b = 0; b < lanes; b++) {
      REAL er = (xr[b] + zr[b]) / 2, ei = (xi[b] - zi[b]) / 2, or = (xi[b] + zi[b]) / 2, oi = (zr[b] - xr[b]) / 2;
      REAL tr = or * w[0] - oi * w[1], ti = or * w[1] + oi * w[0];
      xr[b] = er + tr;
      xi[b] = ei + ti;
      yr[b] = er - tr;
      yi[b] = ti - ei;
    }
  }
}

static CPU_INLINE void NAME(zip)(int64_t h, int64_t lanes, NAME(pair) a, const REAL *w)
{
  memset(a.im, 0, (size_t)lanes * sizeof(REAL)); /* what must be real is taken as real */
  memset(a.im + h * lanes, 0, (size_t)lanes * sizeof(REAL));
  for (int64_t k = 0; k <= h / 2; k++, w += 2) {
    REAL *xr = a.re + k * lanes, *xi = a.im + k * lanes, *yr = a.re + (h - k) * lanes, *yi = a.im + (h - k) * lanes;
    CPU_INDEPENDENT
    for (int64_t b = 0; b < lanes; b++) {
      REAL er = (xr[b] + yr[b]) / 2, ei = (xi[b] - yi[b]) / 2, tr = (xr[b] - yr[b]) / 2, ti = (xi[b] + yi[b]) / 2;
      REAL or = tr * w[0] + ti * w[1], oi = ti * w[0] - tr * w[1];
      yr[b] = er + oi;
      yi[b] = or - ei;
      xr[b] = er - oi;
      xi[b] = ei + or ;
    }
  }
}

/* Reals lie at one end of a transform only, along the last dimension.  (Here: of an odd length.) */
static CPU_INLINE void NAME(read_reals)(const fft_pass *p, int64_t first, int64_t lanes, NAME(pair) a)
{
  for (int64_t k0 = 0; k0 < p->in_length; k0 += TRANSPOSE)
    for (int64_t lane = 0; lane < lanes; lane++) {
      const REAL *from = (const REAL *)p->in + (first + lane) * p->in_length;
      for (int64_t k = k0; k < WEFT_MIN(k0 + TRANSPOSE, p->in_length); k++) a.re[k * lanes + lane] = from[k];
    }
  memset(a.im, 0, (size_t)(p->in_length * lanes) * sizeof(REAL));
}

static CPU_INLINE void NAME(write_reals)(const fft_pass *p, int64_t first, int64_t lanes, NAME(pair) a, REAL scale)
{
  for (int64_t k0 = 0; k0 < p->out_length; k0 += TRANSPOSE)
    for (int64_t lane = 0; lane < lanes; lane++) {
      REAL *to = (REAL *)p->out + (first + lane) * p->out_length;
      for (int64_t k = k0; k < WEFT_MIN(k0 + TRANSPOSE, p->out_length); k++) to[k] = a.re[k * lanes + lane] * scale;
    }
}

/* Half a spectrum of an odd length: the other half mirrors it, and what must be real is taken as real. */
static CPU_INLINE void NAME(mirror)(int64_t n, int64_t lanes, NAME(pair) a)
{
  memset(a.im, 0, (size_t)lanes * sizeof(REAL));
  for (int64_t k = n / 2 + 1; k < n; k++)
    for (int64_t lane = 0; lane < lanes; lane++) {
      a.re[k * lanes + lane] = a.re[(n - k) * lanes + lane];
      a.im[k * lanes + lane] = -a.im[(n - k) * lanes + lane];
    }
}

/* The lines `first .. first + lanes` along one dimension: read, transform, write. */
static CPU_INLINE void NAME(some_lines)(const fft_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  const cpu_fft_line *l = p->line;
  int64_t n = l->n, size = (n + 1) * lanes;
  NAME(pair) a = {memory, memory + size}, b = {memory + 2 * size, memory + 3 * size};
  REAL scale = p->inverse ? (REAL)1 / (REAL)n : 1;

  if (p->in_length < n) memset(memory, 0, (size_t)(2 * size) * sizeof(REAL));
  if (p->real_in) NAME(read_reals)(p, first, lanes, a);
  else NAME(read)(p, first, lanes, a);
  if (p->real_out) NAME(mirror)(n, lanes, a);
  if (p->half_roots && p->inverse) NAME(zip)(n, lanes, a, p->half_roots);
  if (p->inverse) { /* swapping the parts before and after turns the transform into its inverse */
    NAME(pair) turned = {a.im, a.re}, spare = {b.im, b.re};
    NAME(pair) got = NAME(line)(l, lanes, turned, spare, memory + 4 * size);
    a = (NAME(pair)){got.im, got.re};
  } else {
    a = NAME(line)(l, lanes, a, b, memory + 4 * size);
  }
  if (p->half_roots && !p->inverse) NAME(unzip)(n, lanes, a, p->half_roots);
  if (p->real_out) NAME(write_reals)(p, first, lanes, a, scale);
  else NAME(write)(p, first, lanes, a, scale);
}

static CPU_HOT void NAME(task)(const fft_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  if (lanes == LANES) NAME(some_lines)(p, first, LANES, memory); /* a number that the compiler knows */
  else NAME(some_lines)(p, first, lanes, memory);
}

/* ---- long lines (fft.c) ------------------------------------------------------------------------------------------ */

static weft_status *NAME(long_roots)(weft_arena *arena, cpu_fft_long *l)
{
  int64_t n1 = l->columns->n, n2 = l->rows->n, groups = (n2 + LANES - 1) / LANES;
  REAL *steps = WEFT_ARENA_ARRAY(arena, REAL, 2 * groups * n1), *lanes = WEFT_ARENA_ARRAY(arena, REAL, 2 * LANES * n1);

  WEFT_TRY_ALLOC(steps);
  WEFT_TRY_ALLOC(lanes);
  l->group_roots = steps;
  l->lane_roots = lanes;
  for (int64_t g = 0; g < groups; g++)
    for (int64_t k = 0; k < n1; k++, steps += 2) NAME(root)(g * LANES * k, n1 * n2, steps);
  for (int64_t k = 0; k < n1; k++, lanes += 2 * LANES)
    for (int b = 0; b < LANES; b++) {
      REAL root[2];
      NAME(root)(b * k, n1 * n2, root);
      lanes[b] = root[0];
      lanes[LANES + b] = root[1];
    }
  return NULL;
}

/* Transforms columns first .. first + lanes, and multiplies element k of column j by exp(-2 pi i j k / n). */
static CPU_INLINE void NAME(some_columns)(const long_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  const cpu_fft_long *l = p->plan;
  int64_t n = l->columns->n, size = n * lanes;
  const NAME(number) *in = (const NAME(number) *)p->in + first;
  NAME(number) *out = (NAME(number) *)p->out + first;
  const REAL *group = (const REAL *)l->group_roots + first / LANES * n * 2, *lane = l->lane_roots;
  NAME(pair) a = {memory, memory + size}, b = {memory + 2 * size, memory + 3 * size};

  for (int64_t k = 0; k < n; k++) NAME(split)(lanes, in + k * p->in_stride, a.re + k * lanes, a.im + k * lanes);
  if (p->inverse) a = (NAME(pair)){a.im, a.re}; /* the parts stay swapped until the rows are written */
  a = NAME(line)(l->columns, lanes, a, b, NULL);
  for (int64_t k = 0; k < n; k++, group += 2, lane += 2 * LANES) {
    const REAL *xr = a.re + k * lanes, *xi = a.im + k * lanes;
    REAL gr = group[0], gi = group[1], yr[LANES], yi[LANES];
    CPU_INDEPENDENT
    for (int64_t q = 0; q < lanes; q++) {
      REAL wr = gr * lane[q] - gi * lane[LANES + q], wi = gr * lane[LANES + q] + gi * lane[q];
      yr[q] = xr[q] * wr - xi[q] * wi;
      yi[q] = xr[q] * wi + xi[q] * wr;
    }
    NAME(join)(lanes, yr, yi, 1, out + k * p->out_stride);
  }
}

/* Transforms rows first .. first + lanes; element k of row j of the result is at k * out_stride + j. */
static CPU_INLINE void NAME(some_rows)(const long_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  const cpu_fft_line *l = p->plan->rows;
  int64_t n = l->n, size = n * lanes;
  const NAME(number) *in = (const NAME(number) *)p->in + first * p->in_stride;
  NAME(number) *out = (NAME(number) *)p->out + first, block[TRANSPOSE * LANES];
  NAME(pair) a = {memory, memory + size}, b = {memory + 2 * size, memory + 3 * size};
  REAL scale = p->inverse ? (REAL)1 / (REAL)(n * p->plan->columns->n) : 1;

  for (int64_t k0 = 0; k0 < n; k0 += TRANSPOSE) {
    int64_t ks = WEFT_MIN(TRANSPOSE, n - k0);
    for (int64_t lane = 0; lane < lanes; lane++)
      for (int64_t k = 0; k < ks; k++) block[k * lanes + lane] = in[lane * p->in_stride + k0 + k];
    NAME(split)(ks * lanes, block, a.re + k0 * lanes, a.im + k0 * lanes);
  }
  a = NAME(line)(l, lanes, a, b, NULL);
  if (p->inverse) a = (NAME(pair)){a.im, a.re};
  for (int64_t k = 0; k < n; k++) NAME(join)(lanes, a.re + k * lanes, a.im + k * lanes, scale, out + k * p->out_stride);
}

static CPU_HOT void NAME(columns_task)(const long_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  if (lanes == LANES) NAME(some_columns)(p, first, LANES, memory);
  else NAME(some_columns)(p, first, lanes, memory);
}

static CPU_HOT void NAME(rows_task)(const long_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  if (lanes == LANES) NAME(some_rows)(p, first, LANES, memory);
  else NAME(some_rows)(p, first, lanes, memory);
}

/* Elements k and h - k of a whole spectrum that becomes a half one (NAME(unzip)) or of a half spectrum that becomes a
 * whole one (NAME(zip)), as complex numbers; w is the factor of k.  `in` may be `out`. */
static CPU_INLINE void NAME(halves)(const long_pass *p, int64_t k, const REAL *w)
{
  const NAME(number) *in = p->in;
  NAME(number) *out = p->out;
  REAL half = (REAL)0.5, turn = p->inverse ? -1 : 1;
  int64_t h = p->h;

  NAME(number) x = in[k], y = in[k || p->inverse ? h - k : 0]; /* element h of a whole spectrum is element 0 */
  if (k == 0 && p->inverse) x.im = y.im = 0;                   /* what must be real is taken as real */
  REAL er = (x.re + y.re) * half, ei = (x.im - y.im) * half, dr = (x.re - y.re) * half, di = (x.im + y.im) * half;
  REAL or = p->inverse ? dr : di, oi = p->inverse ? di : -dr, wi = w[1] * turn;
  REAL tr = or * w[0] - oi * wi, ti = or * wi + oi * w[0];
  if (k || !p->inverse) out[h - k] = (NAME(number)){p->inverse ? er + ti : er - tr, p->inverse ? tr - ei : ti - ei};
  out[k] = (NAME(number)){p->inverse ? er - ti : er + tr, p->inverse ? ei + tr : ei + ti};
}

/* The same for first <= k < first + count, where it can be eight pairs at a time. */
static CPU_INLINE void NAME(some_halves)(const long_pass *p, int64_t first, int64_t count)
{
  int64_t h = p->h, k = first, end = first + count;
  const NAME(number) *in = p->in;
  NAME(number) *out = p->out;
  const REAL *w = (const REAL *)p->half_roots + 2 * first;
  REAL half = (REAL)0.5, turn = p->inverse ? -1 : 1;

  while (k < end) {
    if (k == 0 || k + 8 > end || k + 7 >= h - k - 7) {
      NAME(halves)(p, k, w);
      k++;
      w += 2;
      continue;
    }
    const NAME(eight) *x = (const void *)(in + k), *y = (const void *)(in + h - k - 7), *c = (const void *)w;
    NAME(eight) *to = (void *)(out + k), *back = (void *)(out + h - k - 7);
    NAME(eight) xr = __builtin_shufflevector(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14);
    NAME(eight) xi = __builtin_shufflevector(x[0], x[1], 1, 3, 5, 7, 9, 11, 13, 15);
    NAME(eight) yr = __builtin_shufflevector(y[0], y[1], 14, 12, 10, 8, 6, 4, 2, 0);
    NAME(eight) yi = __builtin_shufflevector(y[0], y[1], 15, 13, 11, 9, 7, 5, 3, 1);
    NAME(eight) wr = __builtin_shufflevector(c[0], c[1], 0, 2, 4, 6, 8, 10, 12, 14);
    NAME(eight) wi = __builtin_shufflevector(c[0], c[1], 1, 3, 5, 7, 9, 11, 13, 15) * turn;
    NAME(eight) er = (xr + yr) * half, ei = (xi - yi) * half, dr = (xr - yr) * half, di = (xi + yi) * half;
    NAME(eight) or = p->inverse ? dr : di, oi = p->inverse ? di : -dr;
    NAME(eight) tr = or * wr - oi * wi, ti = or * wi + oi * wr;
    NAME(eight) sr = p->inverse ? er - ti : er + tr, si = p->inverse ? ei + tr : ei + ti;
    NAME(eight) ur = p->inverse ? er + ti : er - tr, ui = p->inverse ? tr - ei : ti - ei;
    to[0] = __builtin_shufflevector(sr, si, 0, 8, 1, 9, 2, 10, 3, 11);
    to[1] = __builtin_shufflevector(sr, si, 4, 12, 5, 13, 6, 14, 7, 15);
    back[0] = __builtin_shufflevector(ur, ui, 7, 15, 6, 14, 5, 13, 4, 12);
    back[1] = __builtin_shufflevector(ur, ui, 3, 11, 2, 10, 1, 9, 0, 8);
    k += 8;
    w += 16;
  }
}

static CPU_HOT void NAME(halves_task)(const long_pass *p, int64_t first, int64_t count)
{
  NAME(some_halves)(p, first, count);
}
