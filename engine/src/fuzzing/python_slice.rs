//! The meaning of a slice. The models of the fuzz targets and of `tests/property/` share it.

/// Returns `range(len)[start:stop:step]`, by walking along it.
pub(crate) fn python_slice(
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    len: usize,
) -> Vec<usize> {
    let (len, step) = (len as i128, i128::from(step));
    // A forward walk goes from 0 to before `len`, a backward one from the last element to 0.
    let (first, end) = if step > 0 { (0, len) } else { (len - 1, -1) };
    let cut = |index: i64| {
        let counted = i128::from(index) + if index < 0 { len } else { 0 };
        counted.clamp(first.min(end), first.max(end))
    };
    let (mut at, stop) = (start.map_or(first, cut), stop.map_or(end, cut));
    let mut places = Vec::new();
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        places.push(usize::try_from(at).expect("on the axis"));
        at += step;
    }
    places
}
