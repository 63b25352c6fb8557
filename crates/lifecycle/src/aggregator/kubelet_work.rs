//! The kubelet's lookups of images, its probes, and commands of other callers, on their way into the store and the journal.

use std::sync::Arc;

use super::Aggregator;
use crate::episode_call::EpisodeCall;
use crate::journal::{JournalLine, last_lines};
use crate::kubelet::images::ImageLookup;
use criscope_cri::call::CallRecord;

impl Aggregator {
    /// Notes a lookup of an image.
    pub(super) fn image_lookup(&self, lookup: &ImageLookup) {
        let noted = self.parts.stories.store().note_image_lookup(lookup.clone());
        self.write(noted.then(|| JournalLine::image_lookup(lookup)));
    }

    /// Notes a probe that has ended.
    pub(super) fn probe(&self, record: &CallRecord) {
        let mut store = self.parts.stories.store();
        let is_news = store.note_probe(record);
        if let Some(id) = record.container_id.as_deref().filter(|_| is_news) {
            let probes = store.probes().of_container(id);
            self.write(Some(JournalLine::probes(id, probes)));
        }
    }

    /// Notes a command that a caller other than the kubelet ran in a container, or began to run.
    pub(super) fn intervention(&self, record: Arc<CallRecord>) {
        let call = EpisodeCall::new(record, Vec::new(), None);
        let noted = self.parts.stories.store().note_intervention(&call);
        self.write(noted.then(|| JournalLine::intervention(&call)));
    }

    /// Writes what changes too often to be written each time.
    pub(super) fn write_last_lines(&self) {
        let store = self.parts.stories.store();
        last_lines(&store)
            .into_iter()
            .for_each(|line| self.write(Some(line)));
    }
}
