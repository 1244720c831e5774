//! Remaining amount of a shared resource over time: power of a domain, bandwidth of a storage system.

/// Step function from now on. The remaining amount may be negative; then nothing more can be taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceCurve {
    now: i128,
    /// Amount added (or removed, if negative) at a time, by time.
    steps: Vec<(u64, i128)>,
}

impl ResourceCurve {
    /// Creates a curve with the amount `left` now; `returns` are the amounts returned later, in any order.
    pub(crate) fn new(left: i64, mut returns: Vec<(u64, i128)>) -> Self {
        returns.sort_unstable();
        let mut steps: Vec<(u64, i128)> = Vec::with_capacity(returns.len());
        for (at, amount) in returns {
            match steps.last_mut() {
                Some(last) if last.0 == at => last.1 += amount,
                _ => steps.push((at, amount)),
            }
        }
        Self {
            now: i128::from(left),
            steps,
        }
    }

    /// Least remaining amount from `from` until `until`; `None` means for ever.
    pub(crate) fn min_between(&self, from: u64, until: Option<u64>) -> i128 {
        let begins = self.steps.partition_point(|(at, _)| *at <= from);
        let (before, after) = self.steps.split_at(begins);
        let mut left = self.now + before.iter().map(|(_, amount)| amount).sum::<i128>();
        let mut least = left;
        for (_, amount) in after
            .iter()
            .take_while(|(at, _)| until.is_none_or(|until| *at < until))
        {
            left += amount;
            least = least.min(left);
        }
        least
    }

    /// Largest remaining amount at any time from `from` on.
    pub(crate) fn max_from(&self, from: u64) -> i128 {
        let begins = self.steps.partition_point(|(at, _)| *at <= from);
        let (before, after) = self.steps.split_at(begins);
        let mut left = self.now + before.iter().map(|(_, amount)| amount).sum::<i128>();
        let mut most = left;
        for (_, amount) in after {
            left += amount;
            most = most.max(left);
        }
        most
    }

    /// First time from `from` on at which `amount` remains for the duration `lasts` (`None`: for ever).
    pub(crate) fn first_enough(&self, amount: u64, from: u64, lasts: Option<u64>) -> Option<u64> {
        let amount = i128::from(amount);
        let (mut at, mut left) = (from, self.now);
        let ends = self.steps.iter().map(|(end, _)| Some(*end)).chain([None]);
        let returns = self.steps.iter().map(|(_, more)| *more).chain([0]);
        let mut begins = 0;
        for (end, more) in ends.zip(returns) {
            let is_over = end.is_some_and(|end| end <= at);
            if !is_over && lasts.is_some_and(|lasts| at.saturating_add(lasts) <= begins) {
                return Some(at);
            }
            if !is_over && left < amount {
                at = end?;
            }
            left += more;
            begins = end.unwrap_or(begins);
        }
        Some(at)
    }

    /// Takes an amount from `from` until `until`; `from` is `None` for an amount taken from now on.
    pub(crate) fn take(&mut self, amount: u64, from: Option<u64>, until: Option<u64>) {
        let amount = i128::from(amount);
        match from {
            None => self.now -= amount,
            Some(from) => self.step(from, -amount),
        }
        if let Some(until) = until {
            self.step(until, amount);
        }
    }

    fn step(&mut self, at: u64, amount: i128) {
        let place = self.steps.partition_point(|(known, _)| *known < at);
        match self.steps.get_mut(place) {
            Some(step) if step.0 == at => step.1 += amount,
            _ => self.steps.insert(place, (at, amount)),
        }
    }

    /// First time after `after` at which the amount changes.
    pub(crate) fn next_step(&self, after: u64) -> Option<u64> {
        let place = self.steps.partition_point(|(at, _)| *at <= after);
        self.steps.get(place).map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_minimum_over_time() {
        let mut left = ResourceCurve::new(10, vec![(20, 5), (30, 1), (20, 1)]);
        assert_eq!(left.min_between(0, Some(20)), 10);
        assert_eq!(left.min_between(20, Some(21)), 16);
        left.take(9, Some(25), Some(40));
        assert_eq!(left.min_between(0, None), 7);
        assert_eq!(left.min_between(0, Some(25)), 10);
        assert_eq!(left.min_between(30, Some(40)), 8);
        left.take(8, None, Some(22));
        assert_eq!(left.min_between(0, Some(20)), 2);
        assert_eq!(left.min_between(22, Some(25)), 16);
        assert_eq!((left.next_step(20), left.next_step(40)), (Some(22), None));
        assert_eq!(
            (
                left.max_from(0),
                left.max_from(30),
                ResourceCurve::new(4, vec![(5, -1)]).max_from(0)
            ),
            (17, 17, 4)
        );
    }

    #[test]
    fn the_first_time_with_enough_is_the_first_of_all_that_are_tried() {
        let mut left = ResourceCurve::new(3, vec![(10, 4), (40, 5), (60, -9), (70, 20)]);
        left.take(6, Some(30), Some(50));
        for amount in 0..25 {
            for lasts in [Some(0), Some(1), Some(5), Some(12), Some(100), None] {
                for from in [0, 7, 10, 29, 45, 65, 90] {
                    let until = |at: u64| lasts.map(|lasts| at + lasts.max(1));
                    let is_enough =
                        |at: &u64| left.min_between(*at, until(*at)) >= i128::from(amount);
                    let expected = (from..200).find(is_enough);
                    let lasts = lasts.map(|lasts| lasts.max(1));
                    let found = left.first_enough(amount, from, lasts);
                    assert_eq!(found, expected, "{amount} for {lasts:?} from {from}");
                }
            }
        }
    }
}
