/* cpu/fft_lines.h -- the transform itself, for one real type; included by fft.c with REAL and NAME(x) defined.
 *
 * `lanes` lines are transformed side by side: element k of line b is at re[k * lanes + b], im[...].  Stockham's
 * self-sorting form: a stage of radix r turns x, seen as [r][m][s], into y, seen as [m][r][s],
 *   y[p][j][q] = w^(p j) sum_k x[k][p][q] exp(-2 pi i j k / r),   w = exp(-2 pi i / (r m))
 * then s grows by r and the rest n / r is next.  The inner loop runs over s * lanes neighbours. */

typedef struct NAME(pair) { REAL *re, *im; } NAME(pair);

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
        REAL t1r = amcr + bmdr, t1i = amci + bmdi, t2r = apcr - bpdr, t2i = apci - bpdi, t3r = amcr - bmdr, t3i = amci - bmdi;
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
    default: /* a small prime: the sum as it stands */
      for (int j = 0; j < r; j++) {
        REAL wr = j ? twiddle[2 * j - 2] : 1, wi = j ? twiddle[2 * j - 1] : 0;
        REAL *tor = yr + j * run, *toi = yi + j * run;
        CPU_INDEPENDENT
        for (int64_t q = 0; q < run; q++) {
          tor[q] = xr[q];
          toi[q] = xi[q];
        }
        for (int k = 1; k < r; k++) {
          REAL cr = roots[2 * (j * k % r)], ci = roots[2 * (j * k % r) + 1];
          const REAL *fr = xr + k * step, *fi = xi + k * step;
          CPU_INDEPENDENT
          for (int64_t q = 0; q < run; q++) {
            tor[q] += fr[q] * cr - fi[q] * ci;
            toi[q] += fr[q] * ci + fi[q] * cr;
          }
        }
        CPU_INDEPENDENT
        for (int64_t q = 0; q < run; q++) {
          REAL tr = tor[q] * wr - toi[q] * wi;
          toi[q] = tor[q] * wi + toi[q] * wr;
          tor[q] = tr;
        }
      }
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

/* Transforms a, using b of the same size and, for Bluestein, what follows b; returns which of the two has the result. */
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
    NAME(multiply)(m, lanes, spectrum, l->chirp_spectrum); /* which is divided by m */
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

/* A complex number of the tables: exp(-2 pi i k / n), from the angle reduced to an eighth of a turn. */
static void NAME(root)(int64_t k, int64_t n, REAL *to)
{
  long double angle = 2 * acosl(-1) * (long double)(k % n) / (long double)n;

  to[0] = (REAL)cosl(angle);
  to[1] = (REAL)-sinl(angle);
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

/* ---- lines of an array ------------------------------------------------------------------------------------------------ */

/* The lines `first .. first + lanes` along one dimension: read, transform, write. */
static CPU_HOT void NAME(task)(const fft_pass *p, int64_t first, int64_t lanes, REAL *memory)
{
  const cpu_fft_line *l = p->line;
  int64_t n = l->n, size = n * lanes;
  NAME(pair) a = {memory, memory + size}, b = {memory + 2 * size, memory + 3 * size};
  REAL scale = p->inverse ? (REAL)1 / (REAL)n : 1;

  if (p->in_length < n) memset(memory, 0, (size_t)(2 * size) * sizeof(REAL));
  for (int64_t k0 = 0; k0 < p->in_length; k0 += TRANSPOSE) /* block by block: both sides stay in cache lines */
    for (int64_t lane = 0; lane < lanes; lane++) {
      int64_t line = first + lane, at = line / p->inner * p->in_length * p->inner + line % p->inner;
      for (int64_t k = k0; k < WEFT_MIN(k0 + TRANSPOSE, p->in_length); k++) {
        const REAL *from = (const REAL *)p->in + (at + k * p->inner) * (p->real_in ? 1 : 2);
        a.re[k * lanes + lane] = from[0];
        a.im[k * lanes + lane] = p->real_in ? 0 : from[1];
      }
    }
  if (p->real_out) /* half a spectrum: the other half mirrors it, and what must be real is taken as real */
    for (int64_t lane = 0; lane < lanes; lane++) {
      a.im[lane] = 0;
      if (n % 2 == 0) a.im[n / 2 * lanes + lane] = 0;
      for (int64_t k = n / 2 + 1; k < n; k++) {
        a.re[k * lanes + lane] = a.re[(n - k) * lanes + lane];
        a.im[k * lanes + lane] = -a.im[(n - k) * lanes + lane];
      }
    }
  if (p->inverse) { /* swapping the parts before and after turns the transform into its inverse */
    NAME(pair) turned = {a.im, a.re}, spare = {b.im, b.re};
    NAME(pair) got = NAME(line)(l, lanes, turned, spare, memory + 4 * size);
    a = (NAME(pair)){got.im, got.re};
  } else {
    a = NAME(line)(l, lanes, a, b, memory + 4 * size);
  }
  for (int64_t k0 = 0; k0 < p->out_length; k0 += TRANSPOSE)
    for (int64_t lane = 0; lane < lanes; lane++) {
      int64_t line = first + lane, at = line / p->inner * p->out_length * p->inner + line % p->inner;
      for (int64_t k = k0; k < WEFT_MIN(k0 + TRANSPOSE, p->out_length); k++) {
        REAL *to = (REAL *)p->out + (at + k * p->inner) * (p->real_out ? 1 : 2);
        to[0] = a.re[k * lanes + lane] * scale;
        if (!p->real_out) to[1] = a.im[k * lanes + lane] * scale;
      }
    }
}
