"""Special functions of `chlo` by the approximations of Moshier's Cephes library, which XLA and StableHLO use.

Their errors are a few units in the last place. With the same coefficients, in the same order, ours are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types

# erfc in f64, highest power first: exp(-x^2) P(x) / Q(x) for 1 <= x < 8 and R(x) / S(x) beyond; below, with
# erf(x) = x T(x^2) / U(x^2), the rest to 1.
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)
_R = (
    5.64189583547755073984e-1,
    1.27536670759978104416e0,
    5.01905042251180477414e0,
    6.16021097993053585195e0,
    7.40974269950448939160e0,
    2.97886665372100240670e0,
)
_S = (
    1.0,
    2.26052863220117276590e0,
    9.39603524938001434673e0,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198e0,
    3.36907645100081516050e0,
)
_T = (
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_U = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)

# erfc in f32: exp(-x^2) / x times a polynomial in 1 / x^2, one for x < 2 and one beyond; below 1 erf(x) = x T(x^2).
_NEAR = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
_FAR = (
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503e0,
    2.921019019210786e0,
    -1.015265279202700e0,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)
_SMALL = (
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.128379165726710e0,
)

#: Where exp underflows.
_LOWEST: dict[Attribute, float] = {types.F32: -88.7228394, types.F64: -7.09782712893383996843e2}

# exp(-x) I1(x) / x on [0, 8], and exp(-x) sqrt(x) I1(x) beyond, in Chebyshev polynomials of x / 2 - 2 and 32 / x - 2.
_I1E_NEAR = (
    2.7779141127610464e-18,
    -2.111421214358166e-17,
    1.5536319577362005e-16,
    -1.1055969477353862e-15,
    7.600684294735408e-15,
    -5.042185504727912e-14,
    3.223793365945575e-13,
    -1.9839743977649436e-12,
    1.1736186298890901e-11,
    -6.663489723502027e-11,
    3.625590281552117e-10,
    -1.8872497517228294e-09,
    9.381537386495773e-09,
    -4.445059128796328e-08,
    2.0032947535521353e-07,
    -8.568720264695455e-07,
    3.4702513081376785e-06,
    -1.3273163656039436e-05,
    4.781565107550054e-05,
    -0.00016176081582589674,
    0.0005122859561685758,
    -0.0015135724506312532,
    0.004156422944312888,
    -0.010564084894626197,
    0.024726449030626516,
    -0.05294598120809499,
    0.1026436586898471,
    -0.17641651835783406,
    0.25258718644363365,
)
_I1E_FAR = (
    7.517296310842105e-18,
    4.414348323071708e-18,
    -4.6503053684893586e-17,
    -3.209525921993424e-17,
    2.96262899764595e-16,
    3.3082023109209285e-16,
    -1.8803547755107825e-15,
    -3.8144030724370075e-15,
    1.0420276984128802e-14,
    4.272440016711951e-14,
    -2.1015418427726643e-14,
    -4.0835511110921974e-13,
    -7.198551776245908e-13,
    2.0356285441470896e-12,
    1.4125807436613782e-11,
    3.2526035830154884e-11,
    -1.8974958123505413e-11,
    -5.589743462196584e-10,
    -3.835380385964237e-09,
    -2.6314688468895196e-08,
    -2.512236237870209e-07,
    -3.882564808877691e-06,
    -0.00011058893876262371,
    -0.009761097491361469,
    0.7785762350182801,
)
_I1E_NEAR_SINGLE = (
    9.38153732e-09,
    -4.44505908e-08,
    2.00329481e-07,
    -8.56872e-07,
    3.47025139e-06,
    -1.32731639e-05,
    4.78156508e-05,
    -0.000161760821,
    0.000512286,
    -0.00151357241,
    0.0041564228,
    -0.0105640851,
    0.0247264486,
    -0.0529459827,
    0.102643661,
    -0.176416516,
    0.252587199,
)
_I1E_FAR_SINGLE = (
    -3.83538046e-09,
    -2.63146891e-08,
    -2.51223611e-07,
    -3.88256467e-06,
    -0.000110588939,
    -0.00976109784,
    0.778576254,
)
_I1E: dict[Attribute, tuple[Sequence[float], Sequence[float]]] = {
    types.F32: (_I1E_NEAR_SINGLE, _I1E_FAR_SINGLE),
    types.F64: (_I1E_NEAR, _I1E_FAR),
}


def _polynomial(b: Builder, x: SSAValue, highest_first: Sequence[float]) -> SSAValue:
    out = b.full_like(x, highest_first[0])
    for value in highest_first[1:]:
        out = b.add(b.mul(out, x), b.full_like(x, value))
    return out


def _chebyshev(b: Builder, x: SSAValue, highest_first: Sequence[float]) -> SSAValue:
    """Clenshaw's recurrence; `x` is twice the argument of the polynomials."""
    one, two, three = b.full_like(x, 0), b.full_like(x, 0), b.full_like(x, 0)
    for value in highest_first:
        one, two, three = b.add(b.sub(b.mul(x, one), two), b.full_like(x, value)), one, two
    return b.mul(b.sub(one, three), b.full_like(x, 0.5))


def erfc(b: Builder, x: SSAValue) -> SSAValue:
    """The complement of the error function, in f32 or f64."""
    element = types.element_of(x)
    one, two, zero = b.full_like(x, 1), b.full_like(x, 2), b.full_like(x, 0)
    square, size = b.mul(x, x), b.abs(x)
    exponent = b.negate(square)
    bell = b.exp(exponent)
    if element == types.F64:
        low = b.div(b.mul(bell, _polynomial(b, size, _P)), _polynomial(b, size, _Q))
        high = b.div(b.mul(bell, _polynomial(b, size, _R)), _polynomial(b, size, _S))
        tail = b.select(b.compare(size, b.full_like(x, 8), "lt"), low, high)
        inner = b.div(b.mul(x, _polynomial(b, square, _T)), _polynomial(b, square, _U))
    else:
        inverse = b.div(one, square)
        series = b.select(
            b.compare(size, two, "lt"), _polynomial(b, inverse, _NEAR), _polynomial(b, inverse, _FAR)
        )
        tail = b.mul(b.mul(bell, b.div(one, size)), series)
        inner = b.mul(x, _polynomial(b, square, _SMALL))
    tail = b.select(b.compare(exponent, b.full_like(x, _LOWEST[element]), "lt"), zero, tail)
    outer = b.select(b.compare(x, zero, "lt"), b.sub(two, tail), tail)
    return b.select(b.compare(size, one, "lt"), b.sub(one, inner), outer)


def bessel_i1e(b: Builder, x: SSAValue) -> SSAValue:
    """exp(-|x|) I1(x), in f32 or f64."""
    near, far = _I1E[types.element_of(x)]
    size, two = b.abs(x), b.full_like(x, 2)
    low = b.mul(size, _chebyshev(b, b.sub(b.mul(b.full_like(x, 0.5), size), two), near))
    high = b.div(_chebyshev(b, b.sub(b.div(b.full_like(x, 32), size), two), far), b.sqrt(size))
    return b.mul(b.sign(x), b.select(b.compare(size, b.full_like(x, 8), "le"), low, high))
