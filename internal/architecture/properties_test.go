package architecture

import (
	"fmt"
	"strings"
	"testing"
)

// property is what the receipts promise, in the words of docs/receipts-properties.md,
// and the tests that hold it, as of a promise. Where there is none yet, later says why.
type property struct {
	words string
	tests []string
	later string
}

// properties are by number: the first is 1. A number is never given to another.
var properties = []property{
	{words: "Killed at any byte of any write: after the next start each acknowledged receipt is there once, in its order, and the log verifies",
		tests: []string{"receipts: TestKilledAtEveryByte TestLastWriteCutAtEveryByte TestFirstStartKilledAnywhere TestProofAfterACrash", "agentgw: TestKillUnderLoad"}},
	{words: "The same when the power goes and any part of what was not synced is on disk",
		tests: []string{"receipts: TestPowerLoss TestKilledWhileRepairing TestTornTailIsNoDamage TestSimulatedDisk"}},
	{words: "Of a torn last batch what is whole stays, and a `recovery` record tells length and hash of what was cut, which is kept",
		tests: []string{"receipts: TestRecoveryRecordTellsWhatWasCut TestOrderOfARepair TestGoldenWriter"}},
	{words: "Zeros at the end are space, and no damage", tests: []string{"receipts: TestZeroTailIsTheEnd"}},
	{words: "Records that somebody appended without the key are never signed, and are quarantined", tests: []string{"receipts: TestForeignRecordsAreNeverSigned TestForeignBatchFurtherOnIsCut TestRecordAfterTheEnd"}},
	{words: "Damage before something that was written later: no start, with file and offset", tests: []string{"receipts: TestDamageRefusesToStart TestDamageBeforeABatchRefusesToStart TestDamageAnywhereRefusesToStart"}},
	{words: "No bit of a log, a checkpoint, a proof or an export can be flipped; what is derived is made anew, and answers the same",
		tests: []string{"receipts: TestEveryBitCounts TestEveryBitOfALogCounts TestEveryLineCounts TestEveryClassOfByteCounts TestEveryBitOfAProofCounts TestEveryBitOfAnExportCounts TestEveryBitOfHeadsCounts TestLeavesAreDerived TestEveryBitOfAnIndexIsNoMatter"}},
	{words: "A log cut off between two batches: no start and exit 1 where a newer anchor is there, and exit 4 without, never 0",
		tests: []string{"receipts: TestCutAtABatchBorder TestRollbackIsRefused TestShorterThanItsCheckpointRefusesToStart TestCutBeforeTheEnd"}},
	{words: "An empty or deleted log is never valid, and is not begun anew", tests: []string{"receipts: TestVerdicts TestRemovedLogIsNotBegunAnew TestMissingKeyRefusesToStart", "agentgw: TestReceiptsVerifyExits"}},
	{words: "An older checkpoint is met, and covers no more than it did", tests: []string{"receipts: TestVerdicts TestAnchorsOfExports TestTenantAnchor"}},
	{words: "Two checkpoints of one size with two roots: exit 1, and both are told", tests: []string{"receipts: TestForkIsRefused TestForkedFolderIsRefusedByItsAnchor TestVerdicts"}},
	{words: "Histories that do not continue each other, of the log or of a tenant beside what `heads` tell of it: exit 1", tests: []string{"receipts: TestForkedHeads TestForkedHeadsUnderNoSignature TestTenantAnchor"}},
	{words: "Records that were swapped, removed, doubled, or have a tenant's number twice or not at all: exit 1, and the first that does not hold is named",
		tests: []string{"receipts: TestRearranged TestFirstFaultIsNamed TestRangeIsNamed TestSpokenTwice"}},
	{words: "A receipt of one tenant in the export or the proof of another: exit 1", tests: []string{"receipts: TestAlteredExports TestForgedTrees TestProofIsOfItsTreeAlone"}},
	{words: "A record of another log does not hold", tests: []string{"receipts: TestAnotherKeyOrTamperedWith TestVerdicts"}},
	{words: "What was forged with a fresh key, and brings that key along: exit 2, never 0", tests: []string{"receipts: TestForgedExports TestVerdicts", "agentgw: TestExportAndVerifyAlone TestProveAndVerifyAlone"}},
	{words: "The right name and key hash on a wrong signature: the checkpoint counts for nothing", tests: []string{"receipts: TestForgedSignatureRefusesToStart TestOneSpellingOfASignature TestOneSpellingOfKeyAndAnchor"}},
	{words: "Signing keys are replaced by doubly signed checkpoints, and whoever has the first key follows them", tests: []string{"receipts: TestAnyKeyOfTheWalkVerifies TestHandedOverOnlyAsItIsTo TestCheckpointByAnotherKeyThanTheOneInOffice TestKeyThatNobodyHandedOverTo TestRetentionKeepsTheKeyWalk TestRotationSurvivesACrash TestHandedOverWithoutRoomForAHeader TestRotationAfterAFailedSync TestNoKeyComesBack TestGoldenRotated", "agentgw: TestRotateKey"}},
	{words: "A clock that goes back or stands: commits go on, the place is the order, it is told, and questions of time find the records", tests: []string{"receipts: TestClockGoesBack"}},
	{words: "A full disk: new calls get 503 before their service is called, health and drain answer, and it heals without a restart",
		tests: []string{"receipts: TestFullDiskRefusesNewAttempts TestRoomForOutcomesIsKept TestFullInTheMiddleOfAWrite TestAnEighthOfWhatIsFree", "gateway: TestNoReceiptNoCall TestNoRoomForTheOutcomeNoCall", "agentgw: TestTheDiskIsFull"}},
	{words: "A full disk where the operator lets calls through: answers go on, a `gap` tells how many there were, exactly, and verification exits with 4",
		tests: []string{"receipts: TestGapIsDeclared TestTheBooksMatch TestGoldenGaps", "gateway: TestLetThroughWithoutAReceipt", "agentgw: TestTheDiskIsFull"}},
	{words: "A folder that cannot be written: the start fails with a plain line, and makes nothing", tests: []string{"receipts: TestNoStartWhereNothingCanBeWritten", "agentgw: TestStartThatFails"}},
	{words: "A second process, or a second log in one, is refused at once, and the first goes on", tests: []string{"receipts: TestSecondOpenerIsRefused TestLockIsNotInAFileThatCanBeRemoved"}},
	{words: "A copy of the folder that is started while the original lives is stopped by their anchor", tests: []string{"receipts: TestACopyOfTheFolderIsStopped TestAnIdleLogSeesItsTwin"}},
	{words: "A sync that fails once: who waited fails, and nothing is acknowledged before a restart", tests: []string{"receipts: TestFailedSyncFailsTheLog TestFailedSyncIsBelievedByNoStart TestFailedWriteFailsTheLog TestAnErrorBehindAHang"}},
	{words: "A write that takes a part, or is interrupted, tears no receipt that is acknowledged", tests: []string{"receipts: TestShortAndInterruptedWrites TestEachCallFails TestNothingIsAcknowledgedBeforeItsSync"}},
	{words: "A sync that hangs: refusals after two seconds, bounded memory, and what was taken is there once it has returned", tests: []string{"receipts: TestAHangTripsABreaker TestASlowDiskIsNoHang TestSyncThatHangs"}},
	{words: "A segment that is removed or renamed while it is open is noticed with the next batch, and the log fails", tests: []string{"receipts: TestRemovedSegmentFailsTheLog TestSegmentTakenAwayFailsTheLog"}},
	{words: "A caller that hangs up has its receipt all the same", tests: []string{"gateway: TestStreamsEnd"}},
	{words: "A kill between intent and outcome shows as `outcome_unknown`, never as nothing", tests: []string{"agentgw: TestKillUnderLoad", "receipts: TestGoldenEvery TestGoldenWriter TestOutcomesWithoutAnIntentAreTold"}},
	{words: "A stream that ends in any way has one outcome that says how and how long it was; its last byte goes out once that is durable",
		tests: []string{"gateway: TestStreamsEnd TestStreamWhoseOutcomeIsLost TestSentOnce"}},
	{words: "Whoever was told of a receipt finds it in the log, once", tests: []string{"receipts: TestManyWriters TestWhatWasToldIsThere TestAppendFindReopen", "agentgw: TestKillUnderLoad TestReceiptByID"}},
	{words: "What a tenant is shown says nothing of what others call, nor how much", tests: []string{"receipts: TestProofShowsNothingOfOthers TestExportsShowNothingOfOthers TestSomebodyElsesReceiptIsNotLookedFor", "agentgw: TestReceiptByID"}},
	{words: "Secrets in parameters, headers, answers and URLs stand in no file, export, log or metric", tests: []string{"agentgw: TestSecretsAreWrittenNowhere TestNobodyWritesARecordOfTheirOwn"}},
	{words: "Parameters are opened by their own bytes and their receipt's salt alone, `9007199254740993` not by `9007199254740992`; a tenant's key that is deleted closes them for good",
		tests: []string{"receipts: TestParamsOpenWithTheRightBytesAndSalt TestAProofIsOpened", "gateway: TestReceiptsCommitToTheBytesAsSent", "vault: TestAPINIsNotGuessed TestShredding", "agentgw: TestOneReceiptIsOpened TestShreddingATenantsKey", "store: TestARemovedKeyLeavesNoTrace"}},
	{words: "Readers take a line of 65,535 bytes and none longer; a record over 8 KiB is written with its texts cut", tests: []string{"receipts: TestLongestLine TestRecordOverTheLimit TestGoldenWriter"}},
	{words: "Retention removes whole segments, and proofs of what is left still verify",
		tests: []string{"receipts: TestRetentionKeepsTheProof TestRetentionLeavesTheLastSegment TestRetentionRemovesNothingThatDoesNotHold TestPrunedWithoutTheKey TestRetentionSurvivesACrash TestRetentionMakesRoom TestGoldenPruned"}},
	{words: "What is derived is made anew as it was, and other programs for logs of this kind take it", tests: []string{"receipts: TestLeavesAreDerived TestIndexesAreRebuiltBitByBit TestListsAreTheSameWithAnIndex TestTiles TestTilesOfLeavesAreChecked"}, later: "tiles are held against the standard's text; witnesses and other programs are not asked yet"},
	{words: "Nothing that a stranger writes makes a reader panic or its memory grow", tests: []string{"receipts: FuzzParseRecord FuzzSegment FuzzVerify FuzzAnchor FuzzKey FuzzProof FuzzExport"}},
	{words: "A second verifier, in another language and from FORMAT.md alone, says the same of thousands of altered logs, proofs and exports",
		tests: []string{"receipts: TestSecondVerifierAgrees TestSecondVerifierAgreesOnProofs TestSecondVerifierAgreesOnExports TestSecondVerifierAgreesOnGoldenFiles"}},
	{words: "Of several replicas, one that stopped without a seal is named", tests: []string{"receipts: TestSealIsTheLastEntry TestSealThatNobodySigned TestSealOnABrokenDisk TestHeartbeat TestWhatTheEndOfALogTells", "agentgw: TestSeveralLogsTogether TestSeveralLogsAreVerifiedAtOnce"}},
	{words: "A sink that is down, or gets things twice, has no effect on commits, and ends with each once", tests: []string{"receiptindex: TestEachEntryIsShippedOnce TestCallsGoOnWhileTheDatabaseIsAway TestTheDatabaseIsAnother", "receipts: TestFeedHasNothingThatACrashCouldTake", "agentgw: TestReceiptsOfAllReplicasAreListed"}},
	{words: "Descriptors or threads that cannot be had are an error and no panic", tests: []string{"receipts: TestNoMoreFiles TestEachCallFails"}},
	{words: "A format that this program does not know is refused, and nothing is touched", tests: []string{"receipts: TestOldProgramOnANewerLog TestANewerFormatIsLeftAlone TestClosedLists"}},
	{words: "Speed is a ratio to the usual way, a transaction and a signature for each receipt, measured in one run", later: "no test: `go run ./figures -only receipts` in `bench/` prints the ratios with what is wanted of them"},
}

const (
	beginProperties = "<!-- properties: written by go test ./internal/architecture -run Properties -update -->\n"
	endProperties   = "<!-- end of properties -->\n"
)

// TestProperties: docs/receipts-properties.md says of every property which tests
// hold it, each of which there is, and that they do, or that it is for later.
func TestProperties(t *testing.T) {
	var lines []string
	for _, p := range properties {
		lines = append(lines, p.tests...)
	}
	result := resulter(t, lines)
	var table strings.Builder
	table.WriteString("\n| | property | held by | result |\n| --- | --- | --- | --- |\n")
	for i, p := range properties {
		held, verdict := heldBy(t, p.words, p.tests, result)
		switch {
		case len(p.tests) == 0 && p.later == "":
			t.Errorf("property %d has neither a test nor a reason", i+1)
		case len(p.tests) == 0:
			verdict = "*later*: " + p.later
		case p.later != "":
			verdict += "; *later*: " + p.later
		}
		fmt.Fprintf(&table, "| %d | %s | %s | %s |\n", i+1, p.words, held, verdict)
	}
	if len(properties) != 45 {
		t.Errorf("%d properties", len(properties))
	}
	writePage(t, "docs/receipts-properties.md", "Properties", beginProperties, table.String(), endProperties)
}
