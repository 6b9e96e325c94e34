//! Student's t distribution: how far the mean of few values may lie from the truth.

/// Returns the two-sided critical value of `t`: 2.776 for 4 degrees of freedom and `alpha` = 5 %.
pub(crate) fn critical_t(degrees: f64, alpha: f64) -> f64 {
    // The tail falls with `t`: double until it is below, then halve to twelve digits.
    let mut high = 1.0;
    while two_sided_tail(high, degrees) > alpha && high < 1e9 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if two_sided_tail(middle, degrees) > alpha { low = middle } else { high = middle }
    }
    high
}

/// Returns the probability that |t| is larger.
fn two_sided_tail(t: f64, degrees: f64) -> f64 {
    incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// Returns the regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz), which
/// converges fast if x is below the mean; else by the symmetry of I.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front =
        ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln() - a.ln();
    front.exp() * beta_fraction(x, a, b)
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let not_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / not_zero(1.0 + numerator * d);
            c = not_zero(1.0 + numerator / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0f64).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// Returns ln Γ(x) for x > 0, by Lanczos' approximation (g = 7, nine terms): 15 digits.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Reflection: Γ(x) Γ(1 − x) = π / sin(πx).
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let series = (1..)
        .zip(TERMS)
        .fold(0.999_999_999_999_809_9, |sum, (index, term)| sum + term / (x + f64::from(index)));
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + series.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_tables_are_met() {
        let table = [
            (1.0, 0.05, 12.706),
            (2.0, 0.05, 4.303),
            (4.0, 0.05, 2.776),
            (9.0, 0.05, 2.262),
            (4.0, 0.01, 4.604),
            (2.0, 0.01, 9.925),
            (1000.0, 0.05, 1.962),
        ];
        for (degrees, alpha, expected) in table {
            let found = critical_t(degrees, alpha);
            assert!((found - expected).abs() < 6e-4, "{degrees}, {alpha}: {found}");
        }
    }

    #[test]
    fn gamma_of_whole_and_half_numbers() {
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-12);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
        assert!((ln_gamma(0.25) - 3.625_609_908_221_908_f64.ln()).abs() < 1e-12);
    }
}
