package ratelimit

import "time"

// LentAtOnce is the most bytes of a window that a replica is lent ahead of those that flow.
const LentAtOnce = 1 << 20

// Loan is what a replica was lent of the bytes that a caller may have in a window, which all
// replicas count together.
type Loan struct {
	Lent  int64         // with what was wanted; 0: nothing, as the window is used up
	Used  int64         // of the window, with all that is lent to anybody
	Left  time.Duration // of the window; 0: none has begun
	Began int64         // the window, which no other of this caller is called
}

// Lend counts bytes in a caller's window of a length, which begins with the first, and some
// more that may flow next; none wanted only reads. Nothing passes beyond most if cut is set, but that what is wanted passes whole if
// anything was left.
func (s *Shared) Lend(caller string, window time.Duration, most, want int64, cut bool) (Loan, error) {
	answer, err := s.store.Ask(Job{Script: lendScript, Keys: []string{bytesName(caller)}, Numbers: []int64{
		micros(min(maxWindow, int64(window))), min(most, mostBytes), min(want, mostBytes), oneIf(cut), LentAtOnce,
	}})
	if err != nil {
		s.options.Failed(err)
		return Loan{}, err
	}
	v := answer.Values
	return Loan{Lent: v[0], Used: v[1], Left: time.Duration(v[2]) * time.Microsecond, Began: v[3]}, nil
}

// Repay takes back what of a loan did not flow, by and by, unless another window has begun.
func (s *Shared) Repay(caller string, window time.Duration, of Loan, n int64) {
	s.store.Tell(Job{Script: repayScript, Keys: []string{bytesName(caller)}, Once: true, Numbers: []int64{
		micros(min(maxWindow, int64(window))), n, of.Began,
	}})
}

// mostBytes are as many as are told apart.
const mostBytes = 1 << 52

// Part is what of a limit one replica has while the store is away: its share, or, where all
// passes then, 0 for no limit.
func (s *Shared) Part(most int64) int64 {
	if s.options.Away == PolicyOpen {
		return 0
	}
	return shareOf(most, s.replicas.Load())
}
