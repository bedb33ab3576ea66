#include "common/layout/normal.h"

#include <cmath>

namespace tessera {
namespace {

// The natural logarithm of x > 0 by sums and products alone, as those of the C library differ between processors.
double Log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // in [1/2, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // log m = 2 artanh s, with |s| below 0.172
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2 * s * sum + 0.69314718055994531 * exponent;
}

template <int kTerms>
double Polynomial(const double (&coefficients)[kTerms], double x) {
  double sum = 0;
  for (const double c : coefficients) sum = sum * x + c;
  return sum;
}

constexpr double kTail = 0.02425;
constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                         6.680131188771972e+01,  -1.328068155288572e+01, 1};
constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                         3.754408661907416e+00, 1};

}  // namespace

float NormalOf(uint32_t bits) {
  const double p = (static_cast<double>(bits) + 0.5) / 4294967296.0;
  const double tail = p < 0.5 ? p : 1 - p;
  if (tail >= kTail) {
    const double q = p - 0.5;
    return static_cast<float>(q * Polynomial(kA, q * q) / Polynomial(kB, q * q));
  }
  const double q = std::sqrt(-2 * Log(tail));
  const double x = Polynomial(kC, q) / Polynomial(kD, q);
  return static_cast<float>(p < 0.5 ? x : -x);
}

}  // namespace tessera
