//! Tests of the conformance suite itself: it detects backends with a single flaw.

mod broken;

use std::sync::Arc;
use std::time::Duration;

use broken::{Broken, Flaw};
use haul_storage::conformance;
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{Capabilities, DigestKind, ErrorKind, Storage, Writes};

async fn failing(storage: Arc<dyn Storage>) -> Vec<&'static str> {
    let failures = conformance::failures(storage).await;
    failures.iter().map(|(case, _)| case.name()).collect()
}

/// Every flaw, each time with a case that has to detect it.
const FLAWS: [(Flaw, &str); 64] = [
    (Flaw::CommitIgnoresReplace, "writing::an_existing_file_is_replaced_only_if_requested"),
    (Flaw::CommitIgnoresSize, "writing::a_file_cut_shorter_at_commit_is_shorter"),
    (Flaw::CommitForgetsMetadata, "metadata::a_commit_sets_the_given_metadata"),
    (Flaw::WholeIgnoresReplace, "whole::an_existing_file_is_replaced_only_if_requested"),
    (Flaw::CommitIgnoresExpected, "writing::only_the_expected_version_is_replaced"),
    (Flaw::WholeIgnoresExpected, "whole::only_the_expected_version_is_replaced"),
    (Flaw::RefusedCommitIsRetried, "writing::only_the_expected_version_is_replaced"),
    (Flaw::RefusedCommitIsRetried, "whole::only_the_expected_version_is_replaced"),
    (Flaw::WholeIgnoresLimit, "whole::a_longer_file_than_the_limit_is_refused"),
    (Flaw::WholeLosesLastByte, "whole::every_size_is_read_back"),
    (Flaw::NameTakenBeforeCommit, "writing::a_file_appears_only_at_commit"),
    (Flaw::PartFileRemainsAfterAbort, "writing::an_abort_leaves_no_entries"),
    (Flaw::PartFileForgotten, "resuming::a_part_file_is_resumed"),
    (Flaw::PartFileAlwaysFound, "resuming::without_a_part_file_nothing_is_resumed"),
    (Flaw::PartFileNotEmptied, "resuming::an_old_part_file_is_emptied_unless_resumed"),
    (Flaw::WrongBytesBehindABlockBorder, "reading::every_range_is_right"),
    (Flaw::LastByteOfARangeMissing, "reading::every_range_is_right"),
    (Flaw::RangeOverrun, "reading::every_range_is_right"),
    (Flaw::BeyondTheEndIsAnError, "reading::every_range_is_right"),
    (Flaw::RecheckIsStale, "reading::a_changed_time_is_detected"),
    (Flaw::IdentityIsMadeUp, "reading::the_identity_equals_that_of_stat"),
    (Flaw::DataLeftOutOfExtents, "reading::all_data_lies_in_the_extents"),
    (Flaw::WritesAreAppended, "writing::pieces_out_of_order_are_read_back"),
    (Flaw::LongBlocksAreCutShort, "writing::a_block_of_many_pieces_is_written_whole"),
    (Flaw::LinksInPathsAreFollowed, "links::no_path_goes_through_a_link"),
    (Flaw::LinksAreOpened, "links::a_link_is_not_opened"),
    (Flaw::FilesAreWrittenThroughLinks, "links::a_file_replaces_a_link_and_not_its_target"),
    (Flaw::LinkReplacesUnrequested, "links::a_link_replaces_a_file_only_if_requested"),
    (Flaw::HardLinksAreCopies, "links::a_hard_link_is_the_same_file"),
    (Flaw::CopyReplaces, "moving::a_copy_replaces_nothing"),
    (Flaw::CopyFromDoesNothing, "writing::copy_from_copies_all_or_nothing"),
    (Flaw::RenameLosesTheOld, "moving::an_impossible_rename_fails"),
    (Flaw::RenameToItselfRemoves, "moving::renaming_to_itself_loses_nothing"),
    (Flaw::RemoveTakesAll, "directories::a_nonempty_directory_is_not_removed"),
    (Flaw::RemoveOfNothingIsFine, "directories::removing_a_missing_entry_is_not_found"),
    (Flaw::CreateDirTwiceIsFine, "directories::a_directory_is_made_once"),
    (Flaw::CreateDirMakesParents, "directories::a_directory_needs_its_parent"),
    (Flaw::ListingStopsAfter1000, "entries::a_listing_of_3000_entries_is_complete"),
    (Flaw::ListingRepeatsItself, "entries::a_listing_and_stat_agree"),
    (Flaw::ListingIsRecursive, "entries::a_listing_is_not_recursive"),
    (Flaw::ListingHasOtherTimes, "entries::a_listing_and_stat_agree"),
    (Flaw::NamesAreTrimmed, "names::ordinary_names_are_preserved_byte_for_byte"),
    (Flaw::NamesAreDecoded, "names::ordinary_names_are_preserved_byte_for_byte"),
    (Flaw::NotFoundIsIo, "entries::stat_of_a_missing_path_is_not_found"),
    (Flaw::TimesAreRoundedUp, "metadata::times_are_preserved_to_the_declared_step"),
    (Flaw::ModesAreMasked, "metadata::modes_are_preserved"),
    (Flaw::SettingResetsTheRest, "metadata::omitted_metadata_stays_unchanged"),
    (Flaw::SettingTheImpossibleFails, "metadata::unsupported_metadata_is_ignored"),
    (Flaw::AttributesAreLost, "metadata::extended_attributes_are_preserved"),
    (Flaw::EveryLockIsGranted, "locks::a_second_lock_is_busy"),
    (Flaw::LocksAreNeverReleased, "locks::a_second_lock_is_busy"),
    (Flaw::LanesBreakIt, "unsupported::any_number_of_lanes_is_harmless"),
    (Flaw::RecheckNeverEnds, "reading::the_identity_of_an_unchanged_file_stays_the_same"),
    (Flaw::FilesAreReplacedInPlace, "links::replacing_one_name_spares_the_other"),
    (Flaw::PlantedPartFilesAreFollowed, "links::a_planted_part_file_is_not_written_through"),
    (Flaw::RecordsAreLost, "resuming::recorded_ranges_are_held_by_the_next_run"),
    (Flaw::RecordsAreOfAnySource, "resuming::nothing_is_held_of_another_source"),
    (Flaw::RecordsAreMixed, "resuming::records_of_several_files_do_not_mix"),
    (Flaw::RecordsOutliveTheirFile, "resuming::a_commit_removes_its_own_records"),
    (Flaw::RecordsOutliveTheirFile, "resuming::an_abort_removes_the_records_of_an_earlier_run"),
    (Flaw::RecordsOutliveTheirFile, "resuming::a_commit_removes_the_records_of_an_earlier_run"),
    (Flaw::RecordsOutliveTheirFile, "resuming::an_emptied_part_file_loses_its_records"),
    (Flaw::DigestIsNotReported, "digests::every_claimed_digest_is_that_of_the_content"),
    (Flaw::DigestIsOfTheBeginning, "digests::every_claimed_digest_is_that_of_the_content"),
];

#[tokio::test(start_paused = true)]
async fn every_flaw_is_detected_by_its_case() {
    let mut missed = Vec::new();
    for (flaw, case) in FLAWS {
        let found = failing(Broken::with(flaw)).await;
        if !found.contains(&case) {
            missed.push(format!("{flaw:?} is not noticed by {case}, only by {found:?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The control: the suite detects the flaws, not the wrapper.
#[tokio::test(start_paused = true)]
async fn the_wrapper_without_a_flaw_passes() {
    let inside = MemoryStorage::builder().with_records().with_digests().build();
    let claims = inside.capabilities().clone();
    assert_eq!(failing(Broken::claiming(inside, claims)).await, Vec::<&str>::new());
}

type Set = fn(&mut Capabilities, bool);

/// The suite tests declared capabilities, and that undeclared ones are refused.
#[tokio::test(start_paused = true)]
async fn a_wrongly_declared_capability_is_detected() {
    let lies: [(&str, Set); 9] = [
        ("ranged_reads", |c, yes| c.ranged_reads = yes),
        ("writes", |c, yes| c.writes = if yes { Writes::AnyOrder } else { Writes::InOrder }),
        ("rename", |c, yes| c.rename = yes),
        ("server_copy", |c, yes| c.server_copy = yes),
        ("symlinks", |c, yes| c.symlinks = yes),
        ("hard_links", |c, yes| c.hard_links = yes),
        ("resume", |c, yes| c.resume = yes),
        ("lock", |c, yes| c.lock = yes),
        ("xattrs", |c, yes| c.xattrs = yes),
    ];
    for (name, set) in lies {
        for claimed in [true, false] {
            // An undeclared capability to read ranges does no harm.
            if !claimed && matches!(name, "ranged_reads") {
                continue;
            }
            let inside = MemoryStorage::builder()
                .with_records()
                .with_capabilities(|c| set(c, !claimed))
                .build();
            let mut claims = inside.capabilities().clone();
            set(&mut claims, claimed);
            let found = failing(Broken::claiming(inside, claims)).await;
            assert!(!found.is_empty(), "claiming {name} = {claimed} is not noticed");
        }
    }
    let only_claimed: [(&str, Set); 6] = [
        ("conditional_commits", |c, yes| c.conditional_commits = yes),
        ("times", |c, yes| c.times = yes),
        ("mode", |c, yes| c.mode = yes),
        ("owner", |c, yes| c.owner = yes),
        ("digests", |c, yes| c.digests = if yes { vec![DigestKind::Sha256] } else { Vec::new() }),
        ("time_precision", |c, yes| c.stored_times.step_ns = if yes { 1 } else { 1_000_000 }),
    ];
    for (name, set) in only_claimed {
        let inside = MemoryStorage::builder().with_capabilities(|c| set(c, false)).build();
        let mut claims = inside.capabilities().clone();
        set(&mut claims, true);
        let found = failing(Broken::claiming(inside, claims)).await;
        assert!(!found.is_empty(), "claiming {name} is not noticed");
    }
}

/// If the suite passed with a failing operation, it would not test that operation.
#[tokio::test(start_paused = true)]
async fn an_operation_that_always_fails_is_detected() {
    for operation in [
        Operation::Stat,
        Operation::List,
        Operation::ListEntry,
        Operation::CreateDir,
        Operation::CreateLink,
        Operation::Remove,
        Operation::Rename,
        Operation::Copy,
        Operation::Digest,
        Operation::Metadata,
        Operation::SetMetadata,
        Operation::Open,
        Operation::Create,
        Operation::ReadWhole,
        Operation::WriteWhole,
        Operation::Lock,
        Operation::ReadMetadata,
        Operation::Recheck,
        Operation::Read,
        Operation::NextData,
        Operation::Write,
        Operation::CopyFrom,
        Operation::Record,
        Operation::Sync,
        Operation::Reopen,
        Operation::Commit,
        Operation::Abort,
    ] {
        let storage = MemoryStorage::builder().with_records().with_digests().build();
        storage.faults().on(operation).fail(ErrorKind::Io);
        assert!(!failing(storage).await.is_empty(), "{operation:?} fails, and the suite passes");
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "writing::an_existing_file_is_replaced_only_if_requested")]
async fn the_panic_names_the_failed_case() {
    conformance::run_all(Broken::with(Flaw::CommitIgnoresReplace)).await;
}

/// Formerly, only the case itself had a time limit, so that such a backend held up the suite without a failure.
#[tokio::test(start_paused = true)]
async fn a_storage_that_hangs_before_or_after_a_case_fails_that_case() {
    let cases = conformance::cases();
    let case = cases.iter().find(|case| case.name() == "entries::the_root_is_a_directory").unwrap();
    // The first removal is that of an earlier run's directory.
    for (operation, nth, what) in [
        (Operation::Remove, 1, "making its directory"),
        (Operation::CreateDir, 1, "making its directory"),
        (Operation::Remove, 2, "removing its directory"),
    ] {
        let storage = MemoryStorage::new();
        storage.faults().on(operation).nth(nth).stall();
        let ran = tokio::time::timeout(Duration::from_secs(1000), case.run(storage)).await;
        let failure = ran.expect("it hangs").unwrap_err().to_string();
        assert!(failure.starts_with(&format!("{what} did not end within 120 s")), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_wrong_read_is_detected() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::Read).nth(40).corrupt(0);
    assert!(!failing(storage).await.is_empty());
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::Read).nth(40).cut(10);
    assert!(!failing(storage).await.is_empty());
}
