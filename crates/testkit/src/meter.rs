//! Worst-case fair indexes of flows on a link that sends one byte per unit of time.

use std::collections::VecDeque;

/// A packet between the scheduler and the end of its transmission.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Number of its flow.
    pub flow: usize,
    /// Length.
    pub bytes: u32,
    arrival: u64,
    backlog: u64,
    period: usize,
    /// Finish time by the clock of the flow's rate.
    clock: f64,
}

/// A backlogged period of a flow.
#[derive(Clone, Copy, Debug)]
struct Period {
    /// Minimum of `rate t - served` since it began.
    least: f64,
    ended: bool,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    rate: f64,
    waiting: VecDeque<Taken>,
    backlog: u64,
    served: u64,
    periods: Vec<Period>,
    service: f64,
    delay: f64,
    /// Finish time `f` of the last packet.
    clock: f64,
    latency: f64,
}

impl Flow {
    /// Returns the flow's lag behind `rate t`, up to a constant.
    fn behind(&self, at: u64) -> f64 {
        self.rate * at as f64 - self.served as f64
    }

    fn look(&mut self, period: usize, at: u64) {
        let behind = self.behind(at) - self.periods[period].least;
        self.service = self.service.max(behind);
    }

    fn late(&mut self, packet: Taken, at: u64) {
        let fair = packet.backlog as f64 / self.rate;
        self.delay = self.delay.max((at - packet.arrival) as f64 - fair);
        self.latency = self.latency.max(at as f64 - packet.clock);
    }
}

/// B-WFI, T-WFI and guaranteed-rate latency of each flow, as [`fairlane_core::bounds`] defines them: a flow is
/// backlogged, and its packets count in its backlog, until they leave the scheduler.
///
/// The unit of time is one byte on the link, so that a delay is also the link's work while the link is busy. Events
/// come in order of time. O(1) per event; memory grows with each time that a flow becomes backlogged.
#[derive(Clone, Debug)]
pub struct Meter {
    flows: Vec<Flow>,
}

impl Meter {
    /// Returns a meter of flows by number, given the guaranteed rate of each as a fraction of the link's.
    pub fn new(rates: impl IntoIterator<Item = f64>) -> Meter {
        let flow = |rate| Flow {
            rate,
            ..Flow::default()
        };
        Meter {
            flows: rates.into_iter().map(flow).collect(),
        }
    }

    /// Returns the number of the flow's packets in the scheduler.
    pub fn waiting(&self, flow: usize) -> usize {
        self.flows[flow].waiting.len()
    }

    /// Records that a packet of the flow is enqueued.
    pub fn arrived(&mut self, flow: usize, bytes: u32, at: u64) {
        let measured = &mut self.flows[flow];
        if measured.waiting.is_empty() {
            let least = measured.behind(at);
            measured.periods.push(Period {
                least,
                ended: false,
            });
        }
        measured.backlog += u64::from(bytes);
        let start = measured.clock.max(at as f64);
        measured.clock = start + f64::from(bytes) / measured.rate;
        measured.waiting.push_back(Taken {
            flow,
            bytes,
            arrival: at,
            backlog: measured.backlog,
            period: measured.periods.len() - 1,
            clock: measured.clock,
        });
    }

    /// Records that the scheduler hands out the flow's first packet.
    ///
    /// # Panics
    ///
    /// If the flow has no packet in the scheduler.
    pub fn taken(&mut self, flow: usize, at: u64) -> Taken {
        let measured = &mut self.flows[flow];
        let packet = measured.waiting.pop_front();
        let packet = packet.expect("a packet that leaves was enqueued");
        measured.backlog -= u64::from(packet.bytes);
        if measured.waiting.is_empty() {
            let behind = measured.behind(at);
            let period = &mut measured.periods[packet.period];
            period.least = period.least.min(behind);
            period.ended = true;
        }
        packet
    }

    /// Records that the link begins to send a packet.
    pub fn started(&mut self, packet: Taken, at: u64) {
        self.flows[packet.flow].look(packet.period, at);
    }

    /// Records that the link has sent a packet.
    pub fn sent(&mut self, packet: Taken, at: u64) {
        let measured = &mut self.flows[packet.flow];
        measured.served += u64::from(packet.bytes);
        let behind = measured.behind(at);
        if let Some(period) = measured.periods.last_mut().filter(|period| !period.ended) {
            period.least = period.least.min(behind);
        }
        measured.late(packet, at);
    }

    /// Ends the run between two packets: those still queued are at least as late as now.
    pub fn ended(&mut self, at: u64) {
        for flow in &mut self.flows {
            if let Some(&packet) = flow.waiting.front() {
                flow.look(packet.period, at);
                flow.late(packet, at);
            }
        }
    }

    /// Returns the flow's B-WFI so far, in bytes.
    pub fn service(&self, flow: usize) -> f64 {
        self.flows[flow].service
    }

    /// Returns the flow's T-WFI so far, in units of time.
    pub fn delay(&self, flow: usize) -> f64 {
        self.flows[flow].delay
    }

    /// Returns the flow's latency so far: the most by which a packet left after its clock, in units of time.
    pub fn latency(&self, flow: usize) -> f64 {
        self.flows[flow].latency
    }
}
