//! Reading the configuration again while frames pass.
//!
//! A file that is refused changes nothing. One that is accepted takes over whole, between two
//! packets: the new classes are made beside the old ones, and what is queued moves over, each
//! packet to the class of the same name; those of a class that is gone are sorted anew. Counts
//! go on by the names of classes; where virtual time stood does not matter to new ones.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, bail};
use fairlane_classify::Layer;
use fairlane_config::{Backend, Kind, Link, Site};
use fairlane_core::tree::{ClassQueue, ClassStats};
use fairlane_core::{Count, Nanos};
use fairlane_runtime::Target;
use fairlane_runtime::bridge::{Came, Side};

use super::frame::{Frame, Parcel};
use super::shaper::{Shaped, Shaper, sum};
use super::sorting::Sorting;
use super::{SiteBridge, State, needs};
use crate::classes::Places;
use crate::machine::read_site_again;
use crate::output;

impl State {
    /// Takes the file at `path` over, or says why not.
    pub fn reload<M>(&mut self, path: &Path, bridge: &mut SiteBridge<M>, now: Nanos)
    where
        M: FnMut(Frame, Side, Came) -> Parcel,
    {
        match self.accept(path) {
            Ok(site) => {
                output::warn(&site.warnings);
                for shaper in &mut self.shapers {
                    let link = site.links.iter().find(|link| link.to == shaper.link.to);
                    if let (Some(arbiter), Some(link)) = (bridge.arbiter_mut(shaper.side), link) {
                        arbiter.change_rate(link.rate);
                        *shaper = take_over(shaper, link, arbiter.queue_mut(), now);
                    }
                }
                self.site = site;
                self.reloads += 1;
                output::aside(format_args!(
                    "{} was read again and taken over",
                    path.display()
                ));
            }
            Err(error) => output::aside(format_args!("all goes on as it was: {error:#}")),
        }
    }

    /// The site that the file describes, if it can take over without a restart.
    fn accept(&self, path: &Path) -> Result<Site> {
        let site = read_site_again(path)?;
        let file = path.display();
        if site.interfaces != self.site.interfaces || site.attach != self.site.attach {
            bail!("{file}: [interfaces] and [attach] cannot change without a restart");
        }
        let shared = matches!(&site.interfaces, Some(named) if named.backend == Backend::Xdp);
        if shared && !self.needs.cover(needs(&site)) {
            bail!(
                "{file}: more or longer packets than fit into the memory that xdp was started \
                 with need a restart"
            );
        }
        let ends = |site: &Site| {
            let mut ends: Vec<_> = site.links.iter().map(|link| link.to.name()).collect();
            ends.sort_unstable();
            ends
        };
        if ends(&site) != ends(&self.site) {
            bail!("{file}: a link can neither come nor go without a restart");
        }
        for link in &site.links {
            let before = self.site.links.iter().find(|before| before.to == link.to);
            if before.is_some_and(|before| before.overhead != link.overhead) {
                bail!(
                    "{file}: the overhead of link {} cannot change without a restart",
                    link.name
                );
            }
        }
        Ok(site)
    }
}

/// Makes the classes of `link` and moves over what those of `former` hold. O(classes + packets).
fn take_over(former: &Shaper, link: &Link, queue: &mut Shaped, now: Nanos) -> Shaper {
    let (discipline, ids) = link.discipline();
    let mut sorting = Sorting::new(link, &ids, former.key);
    sorting.sorter = sorting.sorter.resume(&queue.classifier().sorter);
    let mut shaper = Shaper::of(link.clone(), former.side, ids, former.key);
    let names = link.classes.iter().map(|class| class.name.as_str());
    let by_name: HashMap<&str, usize> = names.zip(0..).collect();
    let places = Places::new(&former.ids);
    // By the place of a former class, the place of the one that stays.
    let staying = |place: usize| {
        let name = former.link.classes[place].name.as_str();
        by_name.get(name).copied()
    };
    let mut moved = vec![Count::default(); former.ids.len()];
    let (before, mut sorted) = queue.replace(
        discipline,
        sorting,
        now,
        |classes, out| {
            for &id in &former.ids {
                classes.flush(id, now, |gone| {
                    for place in former.path(places.of(gone.class)) {
                        moved[place].packets += 1;
                        moved[place].bytes += u64::from(gone.len.get());
                    }
                    out(gone);
                });
            }
        },
        |sorting, class, parcel| match staying(places.of(class))
            .filter(|&place| holds_packets(link, place))
        {
            Some(place) => {
                let (bytes, origin) = (parcel.frame.bytes(), &parcel.origin);
                let sorted = sorting.sorter.within(place, bytes, Layer::Ethernet, origin);
                Target {
                    class: sorted.class,
                    flow: sorted.flow,
                }
            }
            None => sorting.sort(parcel),
        },
    );
    for (place, &moved) in moved.iter().enumerate() {
        if let Some(new) = staying(place) {
            let counted = before.stats(former.ids[place]).unwrap_or_default();
            let counted = sum(&former.former[place], &counted);
            shaper.former[new] = without(counted, moved);
            let delays = std::mem::take(&mut sorted.delays[place]);
            queue.classifier_mut().delays[new] = delays;
            queue.classifier_mut().beside_lost[new] += sorted.beside_lost[place];
        }
    }
    shaper
}

fn holds_packets(link: &Link, place: usize) -> bool {
    !matches!(link.classes[place].kind, Kind::Inner(_))
}

/// What moves on was accepted here and discarded here, and neither counts.
fn without(stats: ClassStats, moved: Count) -> ClassStats {
    let less = |count: Count| Count {
        packets: count.packets - moved.packets,
        bytes: count.bytes - moved.bytes,
    };
    ClassStats {
        accepted: less(stats.accepted),
        discarded: less(stats.discarded),
        ..stats
    }
}
