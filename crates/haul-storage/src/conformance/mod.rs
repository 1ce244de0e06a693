//! The conformance suite: what every backend has to do, as plain functions over [`Storage`].
//!
//! A backend's test passes an empty writable root:
//!
//! ```no_run
//! # async fn example(storage: std::sync::Arc<dyn haul_storage::Storage>) {
//! haul_storage::conformance::run_all(storage).await;
//! # }
//! ```
//!
//! Each [`Case`] is one sentence about behaviour and works in a directory of its own, which is removed
//! afterwards. The declared capabilities alone decide which cases apply: a backend that declares less
//! is tested less, and one that declares more has to deliver it. Without their capability, links, copies
//! and locks have to be refused as `Unsupported`, but metadata that cannot be set is left out silently. A
//! case does not trust a backend's result: it checks the effect.
//!
//! Modules: `fixture` holds what each case works on, `sizes` the boundary lengths; each other module tests one
//! part of the traits.

#[macro_use]
mod fixture;
mod concurrent;
mod digests;
mod directories;
mod entries;
mod extension;
mod links;
mod locks;
mod metadata;
mod moving;
mod names;
mod reading;
mod resuming;
mod sizes;
mod unsupported;
mod whole;
mod writing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{Capabilities, Medium, Storage, Writes};
pub use concurrent::two_machines;
use fixture::Fixture;
pub use fixture::{Failure, Outcome};

/// Time limit of a case, and of making and of removing its directory: a backend that hangs has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// One requirement for a backend.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    applies: fn(&Capabilities) -> bool,
    run: fn(Fixture) -> BoxFuture<'static, Outcome>,
}

impl Case {
    /// Module and function: `module::the_required_behaviour`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a storage with these capabilities has to pass the case.
    pub fn applies(&self, capabilities: &Capabilities) -> bool {
        (self.applies)(capabilities)
    }

    /// Runs the case in a directory of its own, and removes that directory.
    ///
    /// # Errors
    /// What was wrong, and where in the suite it was noticed.
    pub async fn run(&self, storage: Arc<dyn Storage>) -> Outcome {
        let fixture = in_time("making its directory", Fixture::prepare(storage, self.name)).await?;
        let outcome = in_time("it", (self.run)(fixture.clone())).await;
        let cleaned = in_time("removing its directory", fixture.clean_up()).await;
        outcome.and(cleaned)
    }
}

/// The outcome of `work`; a failure once [`PATIENCE`] is over.
async fn in_time<T>(what: &str, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| {
        Err(Failure::new(format!("{what} did not end within {} s", PATIENCE.as_secs())))
    })
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

/// Runs every case that applies, one after another.
///
/// # Panics
/// If any case fails; the message names each with its failure.
pub async fn run_all(storage: Arc<dyn Storage>) {
    let failures = failures(storage).await;
    let report: String =
        failures.iter().map(|(case, failure)| format!("\n{}: {failure}", case.name())).collect();
    assert!(failures.is_empty(), "{} conformance cases failed:{report}", failures.len());
}

/// Runs every case that applies and returns those that failed.
pub async fn failures(storage: Arc<dyn Storage>) -> Vec<(Case, Failure)> {
    let mut failures = Vec::new();
    for case in cases() {
        if case.applies(storage.capabilities())
            && let Err(failure) = case.run(Arc::clone(&storage)).await
        {
            failures.push((case, failure));
        }
    }
    failures
}

macro_rules! cases {
    ($($module:ident { $($case:ident $(if $applies:expr)?;)* })*) => {
        /// All cases.
        pub fn cases() -> Vec<Case> {
            vec![$($(
                Case {
                    name: concat!(stringify!($module), "::", stringify!($case)),
                    applies: cases!(@applies $($applies)?),
                    run: |fixture| Box::pin($module::$case(fixture)),
                },
            )*)*]
        }
    };
    (@applies) => { |_| true };
    (@applies $applies:expr) => { $applies };
}

fn any_order(capabilities: &Capabilities) -> bool {
    capabilities.writes == Writes::AnyOrder
}

/// Whether two writers of one file may exist: disks and peers lock a part file.
fn without_locks(capabilities: &Capabilities) -> bool {
    capabilities.medium == Medium::Link && !capabilities.lock
}

cases! {
    concurrent {
        two_uploads_of_one_storage_do_not_mix if without_locks;
    }
    entries {
        the_root_is_a_directory;
        capabilities_make_sense;
        an_empty_directory_lists_nothing;
        stat_describes_the_entry;
        stat_of_a_missing_path_is_not_found;
        a_listing_and_stat_agree;
        a_listing_is_not_recursive;
        listing_a_file_or_a_missing_path_fails;
        a_listing_of_3000_entries_is_complete;
    }
    names {
        ordinary_names_are_preserved_byte_for_byte;
        odd_names_are_preserved_byte_for_byte_or_refused;
        names_up_to_255_bytes_are_preserved;
        directories_take_the_same_names;
    }
    directories {
        a_directory_is_made_once;
        a_directory_needs_its_parent;
        no_directory_is_made_below_a_file;
        a_nonempty_directory_is_not_removed;
        removing_a_missing_entry_is_not_found;
        a_removed_entry_is_gone;
    }
    whole {
        every_size_is_read_back;
        a_longer_file_than_the_limit_is_refused;
        an_existing_file_is_replaced_only_if_requested;
        only_the_expected_version_is_replaced if |c| c.conditional_commits;
        reading_a_directory_or_a_missing_file_fails;
        writing_to_an_impossible_path_fails;
        write_whole_leaves_no_other_entries;
        the_identity_equals_that_of_stat;
    }
    writing {
        every_size_is_read_back;
        pieces_in_order_are_read_back;
        pieces_out_of_order_are_read_back if any_order;
        concurrent_pieces_are_read_back if any_order;
        a_later_write_wins if any_order;
        a_block_of_many_pieces_is_written_whole;
        unwritten_ranges_read_as_zeros if any_order;
        a_file_cut_shorter_at_commit_is_shorter if any_order;
        a_reserved_size_does_not_set_the_length if any_order;
        a_file_appears_only_at_commit;
        the_old_file_stays_until_commit;
        an_existing_file_is_replaced_only_if_requested;
        only_the_expected_version_is_replaced if |c| c.conditional_commits;
        an_abort_leaves_no_entries;
        creating_a_file_at_an_impossible_path_fails;
        a_directory_is_never_replaced_by_a_file;
        a_synced_file_is_complete if |c| c.sync;
        an_unfinished_file_can_be_reopened;
        out_of_order_writes_fail_without_the_capability if |c| !any_order(c);
        several_files_are_written_at_once;
        a_big_file_is_read_back;
        copy_from_copies_all_or_nothing if any_order;
    }
    resuming {
        a_part_file_is_resumed if |c| c.resume;
        a_dropped_writer_leaves_its_part_file if |c| c.resume;
        an_old_part_file_is_emptied_unless_resumed if |c| c.resume && any_order(c);
        without_a_part_file_nothing_is_resumed;
        an_aborted_part_file_is_not_resumed;
        a_second_writer_is_busy if |c| c.resume && c.lock;
        a_finished_file_is_not_resumed;
        without_the_capability_nothing_is_held if |c| !c.resume;
        recorded_ranges_are_held_by_the_next_run if |c| c.resume;
        ranges_recorded_by_a_killed_run_are_held if |c| c.resume;
        nothing_is_held_of_another_source if |c| c.resume;
        a_commit_removes_its_own_records if |c| c.resume;
        an_abort_removes_the_records_of_an_earlier_run if |c| c.resume;
        a_commit_removes_the_records_of_an_earlier_run if |c| c.resume;
        an_emptied_part_file_loses_its_records if |c| c.resume;
        records_of_several_files_do_not_mix if |c| c.resume;
    }
    reading {
        every_range_is_right if |c| c.ranged_reads;
        concurrent_reads_do_not_mix if |c| c.ranged_reads;
        a_dropped_read_harms_no_other;
        a_range_requested_with_the_open_is_right;
        a_read_with_a_lowered_end_returns_all_before_it;
        an_endless_range_ends_with_the_file;
        the_identity_equals_that_of_stat;
        the_identity_of_an_unchanged_file_stays_the_same;
        a_changed_time_is_detected if |c| c.times;
        a_replaced_file_is_detected_or_read_unchanged;
        a_file_removed_during_a_read_is_detected_or_read_unchanged;
        opening_a_directory_or_a_missing_file_fails;
        all_data_lies_in_the_extents;
        a_reader_returns_the_metadata_of_the_storage;
    }
    metadata {
        times_are_preserved_to_the_declared_step if |c| c.times;
        times_of_directories_are_preserved if |c| c.times;
        modes_are_preserved if |c| c.mode;
        modes_of_directories_are_preserved if |c| c.mode;
        extended_attributes_are_preserved if |c| c.xattrs;
        the_present_owner_can_be_set if |c| c.owner;
        omitted_metadata_stays_unchanged if |c| c.mode && c.times;
        a_commit_sets_the_given_metadata;
        unsupported_metadata_is_ignored;
        metadata_of_a_missing_path_is_not_found;
    }
    digests {
        every_claimed_digest_is_that_of_the_content;
        a_changed_file_has_another_digest;
        directories_and_missing_files_have_no_digest;
    }
    links {
        a_symbolic_link_keeps_its_target if |c| c.symlinks;
        a_link_replaces_a_file_only_if_requested if |c| c.symlinks;
        removing_a_link_spares_its_target if |c| c.symlinks;
        a_link_is_not_opened if |c| c.symlinks;
        no_path_goes_through_a_link if |c| c.symlinks;
        a_file_replaces_a_link_and_not_its_target if |c| c.symlinks;
        a_planted_part_file_is_not_written_through if |c| c.symlinks && c.resume;
        metadata_of_a_link_spares_its_target if |c| c.symlinks;
        a_hard_link_is_the_same_file if |c| c.hard_links;
        a_hard_link_needs_a_file if |c| c.hard_links;
        replacing_one_name_spares_the_other if |c| c.hard_links;
    }
    moving {
        a_file_is_renamed;
        a_directory_is_renamed_with_what_is_in_it;
        an_impossible_rename_fails;
        a_rename_replaces_if_it_can;
        renaming_to_itself_loses_nothing;
        a_copy_has_the_same_bytes if |c| c.server_copy;
        a_copy_replaces_nothing if |c| c.server_copy;
    }
    locks {
        a_second_lock_is_busy if |c| c.lock;
        the_holder_of_a_lock_can_write if |c| c.lock;
    }
    unsupported {
        undeclared_operations_are_unsupported;
        any_number_of_lanes_is_harmless;
    }
    extension {
        find_returns_none_for_a_missing_path;
        missing_parent_directories_are_created;
        a_file_in_the_way_of_directories_is_an_error;
        a_sorted_listing_is_sorted;
        a_tree_is_removed_whole;
        removing_a_tree_spares_the_targets_of_links if |c| c.symlinks;
    }
}
