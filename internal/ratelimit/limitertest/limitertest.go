// Package limitertest holds what every limiter owes its users, as tests that any
// implementation runs unchanged: that of one process, and one that replicas
// share. They speak of verdicts only, never of how a limiter comes to them.
//
//	func TestContract(t *testing.T) {
//		limitertest.Run(t, func(t limitertest.TB) limitertest.Subject { ... })
//	}
package limitertest

import (
	"os"
	"slices"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// Limiter is what is tested. See ratelimit.Local for what its methods promise.
type Limiter interface {
	Take(r *ratelimit.Ref, now int64) ratelimit.Charge
	Defer(r *ratelimit.Ref, now int64) ratelimit.Charge
	Settle(c ratelimit.Charge, now int64) ratelimit.Charge
	Admit(c ratelimit.Charge, a ratelimit.Admission, now int64) (ratelimit.Ticket, ratelimit.Verdict)
	Enter(c ratelimit.Charge, a ratelimit.Admission, queue, now int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict)
	Pay(c ratelimit.Charge, a ratelimit.Admission, now int64) ratelimit.Verdict
	Spend(c ratelimit.Charge, uses []ratelimit.Use, now int64) ratelimit.Verdict
	Follow(c *ratelimit.Caps)
	Peek(r *ratelimit.Ref, now int64) (bucket, slots ratelimit.Reading)
	Count(u *ratelimit.Use, n, now int64)
	Counted(r *ratelimit.Rule, partition string, now int64) (used int64, left time.Duration)
}

// Subject is a limiter that nobody used yet, and its time, which passes only by
// Advance.
type Subject struct {
	Limiter
	Now     func() int64
	Advance func(time.Duration)
	// Epoch is the Unix time, in nanoseconds, at which Now was 0.
	Epoch int64
	// Resolution is the step in which it tells time; 0 is a nanosecond. It must
	// divide a millisecond.
	Resolution time.Duration

	process int64 // the cap of the process that calls bring; 0 is none
}

// under returns s with a cap of the process that each of its calls brings.
func (s Subject) under(process int64) Subject {
	s.process = process
	return s
}

// TB is what a test of one history is: a testing.T, or a rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// Maker makes a Subject. It is called for each history, thousands of times.
type Maker func(t TB) Subject

// Run runs them all. DRILLS=full makes the counts large.
func Run(t *testing.T, make Maker) { RunOf(t, 1, make) }

// part is what scaled counts are divided by. A suite does not run beside another.
var part = 1

// RunOf is Run with the counts divided by n, for a limiter that takes a thousand times
// as long to decide as one that asks nobody.
func RunOf(t *testing.T, n int, make Maker) {
	part = n
	t.Cleanup(func() { part = 1 })
	for _, test := range []struct {
		name string
		run  func(*testing.T, Maker)
	}{
		{"AllOrNothing", allOrNothing},
		{"PayingTakesNoSlot", payingTakesNoSlot},
		{"WaitIsTrue", waitIsTrue},
		{"ConcurrencyRefusalsAreFree", concurrencyRefusalsAreFree},
		{"ATenantIsNotDrainedByOneKey", aTenantIsNotDrainedByOneKey},
		{"CallersWithoutATenant", callersWithoutATenant},
		{"CallersWait", callersWait},
		{"ZeroDisables", zeroDisables},
		{"ReadingsAreOfTheDecision", readingsAreOfTheDecision},
		{"ANameIsOneBucket", aNameIsOneBucket},
		{"ChangesOfLimit", changesOfLimit},
		{"ChangesOfCap", changesOfCap},
		{"ReleaseIsOnce", releaseIsOnce},
		{"ReleaseAfterPanic", releaseAfterPanic},
		{"ACrowdGetsTheBurst", aCrowdGetsTheBurst},
		{"PeakNeverExceedsTheCap", peakNeverExceedsTheCap},
		{"ASharedSlotIsOne", aSharedSlotIsOne},
		{"FirstComeFirstServed", firstComeFirstServed},
		{"NobodyOvertakes", nobodyOvertakes},
		{"TokensAreTakenOnce", tokensAreTakenOnce},
		{"LeavingGivesAllBack", leavingGivesAllBack},
		{"RefundsAcrossChangesMintNothing", refundsAcrossChangesMintNothing},
		{"RefundsWithholdWhatTimePaid", refundsWithholdWhatTimePaid},
		{"WaitingIsBounded", waitingIsBounded},
		{"CapsInForce", capsInForce},
		{"ALoweredCapHoldsForAll", aLoweredCapHoldsForAll},
		{"ARaisedCapHoldsForAll", aRaisedCapHoldsForAll},
		{"AFirstCapHoldsForWhoWaits", aFirstCapHoldsForWhoWaits},
		{"PeakWithAQueue", peakWithAQueue},
		{"SlotsAreSharedByTime", slotsAreSharedByTime},
		{"APoolHasTurnsOfItsOwn", aPoolHasTurnsOfItsOwn},
		{"NobodyPaysForWhatNobodyWanted", nobodyPaysForWhatNobodyWanted},
		{"WhoComesSavedUpNothing", whoComesSavedUpNothing},
		{"AFullTenantSavesUpNothing", aFullTenantSavesUpNothing},
		{"QueueAgainstANaiveBook", queueAgainstANaiveBook},
		{"RulesCountExactly", rulesCountExactly},
		{"RulesAreAllOrNothing", rulesAreAllOrNothing},
		{"WindowsAreAligned", windowsAreAligned},
		{"RulesObserve", rulesObserve},
		{"MaxIsOfTheCall", maxIsOfTheCall},
		{"MoreIsCountedLater", moreIsCountedLater},
		{"ARuleIsItsNameAndWindow", aRuleIsItsNameAndWindow},
		{"RulesInAnyOrder", rulesInAnyOrder},
		{"RulesAgainstNaiveSums", rulesAgainstNaiveSums},
		{"CountsComeBackInTheirWindow", countsComeBackInTheirWindow},
		{"RulesAloneAreAllOrNothing", rulesAloneAreAllOrNothing},
		{"RulesAloneCountExactly", rulesAloneCountExactly},
		{"AQueueIsLinearizable", aQueueIsLinearizable},
		{"NeverMoreThanTheLimit", neverMoreThanTheLimit},
		{"AgainstNaiveAccounts", againstNaiveAccounts},
		{"ATenantIsLinearizable", aTenantIsLinearizable},
		{"ATenantIsLinearizableInTime", aTenantIsLinearizableInTime},
		{"AKeyIsLinearizable", aKeyIsLinearizable},
		{"AKeyIsLinearizableAcrossLimits", aKeyIsLinearizableAcrossLimits},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, make) })
	}
}

// scaled returns how often a drill runs: the count that speaks for itself under
// DRILLS=full, and a tenth of it otherwise.
func scaled(full int) int {
	if os.Getenv("DRILLS") == "full" {
		return max(1, full/part)
	}
	return max(1, full/10/part)
}

// long skips a property that takes thousands of decisions, one after the other, whatever
// counts are divided by: where RunOf divides by hundreds, they are for DRILLS=full.
func long(t *testing.T) {
	t.Helper()
	if scaled(4000) < 4 {
		t.Skip("it takes thousands of decisions, which take too long here without DRILLS=full")
	}
}

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

func key(name string, l ratelimit.Limit) *ratelimit.Ref {
	return ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, name, l)
}

func tenant(name string, l ratelimit.Limit, slots int64) *ratelimit.Ref {
	return ratelimit.NewTenant(ratelimit.Registered, name, l, slots)
}

func bucket(key, service string, l ratelimit.Limit) *ratelimit.Ref {
	return ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket(key, service), l)
}

// call makes a whole call: the key's token, then everything else.
func (s Subject) call(k *ratelimit.Ref, a ratelimit.Admission) (ratelimit.Ticket, ratelimit.Verdict) {
	c := s.Defer(k, s.Now())
	if c.Refused() {
		return ratelimit.Ticket{}, c.Verdict()
	}
	a.Process = s.process
	return s.Admit(c, a, s.Now())
}

// admit makes a call without a key's bucket.
func (s Subject) admit(a ratelimit.Admission) (ratelimit.Ticket, ratelimit.Verdict) {
	a.Process = s.process
	return s.Admit(ratelimit.Charge{}, a, s.Now())
}

// take takes a token and reports whether there was one.
func (s Subject) take(r *ratelimit.Ref) bool { return !s.Take(r, s.Now()).Refused() }

func (s Subject) left(r *ratelimit.Ref) int64 {
	b, _ := s.Peek(r, s.Now())
	return b.Remaining
}

func (s Subject) slotsLeft(r *ratelimit.Ref) int64 {
	_, slots := s.Peek(r, s.Now())
	return slots.Remaining
}

func (s Subject) step() time.Duration { return max(1, s.Resolution) }

func wantVerdict(t TB, what string, v ratelimit.Verdict, o ratelimit.Outcome, limit ratelimit.Kind, wait time.Duration, violated ...ratelimit.Kind) {
	t.Helper()
	if v.Outcome != o || v.Limit != limit || v.Wait != wait || !slices.Equal(slices.Collect(v.Violated()), violated) {
		t.Errorf("%s: %v, limit %v, wait %v, violated %v; want %v, %v, %v, %v", what,
			v.Outcome, v.Limit, v.Wait, slices.Collect(v.Violated()), o, limit, wait, violated)
	}
}
