package tunnel

import (
	"sync"
	"time"
)

// Counter counts what flows through tunnels against what callers may have. Between Open and
// Close a caller has a tunnel; whoever spends has one. Safe for concurrent use.
type Counter interface {
	Open(caller string)
	Close(caller string)
	Spend(caller string, l Limit, n, now int64) Lease
	Return(caller string, lease Lease, unused int64)
	// Standing reads how a caller stands, for who is about to open a tunnel.
	Standing(caller string, l Limit, now int64) Standing
	// Exhausted reports whether he has used up the limit, as far as is known without asking.
	Exhausted(caller string, l Limit, now int64) bool
}

// Loan is what a process was lent of a window that several count together.
type Loan struct {
	Lent  int64         // with what was wanted; 0: the window is used up
	Used  int64         // of the window, with all that is lent to anybody
	Left  time.Duration // of the window; 0: none has begun
	Began int64         // which window it is
}

// Lender keeps the windows that processes share. An error says that it cannot be asked now.
type Lender interface {
	// Lend counts what is wanted and some more, which may flow next; nothing only reads.
	Lend(caller string, l Limit, want int64) (Loan, error)
	// Repay takes back what did not flow.
	Repay(caller string, l Limit, of Loan, n int64)
	// Part is what of a limit this process has while the lender cannot be asked; 0 bytes
	// are no limit.
	Part(l Limit) Limit
}

// Fleet counts in windows that several processes share. What flows is counted before it does,
// in loans, so that most pieces need not ask. Beyond the limit passes what passes beyond one
// process's: of each process one piece at most. While a caller has tunnels in several
// processes, what one of them was lent and has not used is not there for the others.
//
// While the lender cannot be asked each process goes by its part of the limit, and by what
// it had been lent.
type Fleet struct {
	lender Lender
	local  *Budgets // what flowed here

	mu sync.Mutex
	of map[string]*account // of whoever has a tunnel here
}

// account is what is known of a caller's window.
type account struct {
	tunnels int
	limit   Limit // as whoever spent last had it
	loan    Loan  // the last
	unused  int64 // of what was lent; below 0, what flowed beyond
	ends    int64 // the window
	alone   bool  // the lender could not be asked
}

// NewFleet returns a Fleet whose windows lender keeps, and that counts in local what flows
// here.
func NewFleet(lender Lender, local *Budgets) *Fleet {
	return &Fleet{lender: lender, local: local, of: map[string]*account{}}
}

// Open implements Counter.
func (f *Fleet) Open(caller string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.of[caller]
	if a == nil {
		a = &account{}
		f.of[caller] = a
	}
	a.tunnels++
}

// Close implements Counter. With the last tunnel goes what was lent and not used.
func (f *Fleet) Close(caller string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.of[caller]
	if a == nil {
		return
	}
	if a.tunnels--; a.tunnels > 0 {
		return
	}
	delete(f.of, caller)
	if a.unused > 0 {
		f.lender.Repay(caller, a.limit, a.loan, a.unused)
	}
}

// Spend implements Counter.
func (f *Fleet) Spend(caller string, l Limit, n, now int64) Lease {
	if l.Bytes <= 0 {
		return Lease{OK: true}
	}
	if lease, ok := f.take(caller, l, n, now); ok {
		return f.flows(caller, l, n, now, lease)
	}
	loan, err := f.lender.Lend(caller, l, n)
	f.mu.Lock()
	a := f.of[caller]
	if a == nil {
		a = &account{} // of nobody: what he is lent besides is lost with it
	}
	a.limit, a.alone = l, err != nil
	if err != nil {
		known := now < a.ends && a.loan.Used >= l.Bytes // by all of them, before that
		f.mu.Unlock()
		if known && l.Cut {
			return Lease{}
		}
		part := f.lender.Part(l)
		return f.local.Spend(caller, part, n, now)
	}
	ok := a.lentLocked(loan, n, now)
	lease := Lease{Last: a.loan.Used >= l.Bytes && a.unused <= 0, loan: a.loan.Began}
	f.mu.Unlock()
	if !ok {
		return Lease{}
	}
	return f.flows(caller, l, n, now, lease)
}

// take takes a piece from what was lent, if that is enough.
func (f *Fleet) take(caller string, l Limit, n, now int64) (lease Lease, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.of[caller]
	if a == nil {
		return lease, false
	}
	if now >= a.ends { // another window, in which this is nothing
		a.unused = 0
	}
	// The last of it is asked for again: so it is known when nothing is left.
	if a.limit = l; a.unused <= n {
		return lease, false
	}
	a.unused -= n
	return Lease{loan: a.loan.Began}, true
}

// lentLocked takes in a loan of which n flow now, and reports whether they may. Where nothing
// was lent any more they flow whole by what is left of an earlier one.
func (a *account) lentLocked(loan Loan, n, now int64) bool {
	if loan.Began < a.loan.Began { // of a window that is over
		return loan.Lent > 0
	}
	if loan.Began > a.loan.Began {
		a.unused = 0
	} else {
		loan.Used = max(loan.Used, a.loan.Used)
	}
	a.loan, a.ends = loan, now+int64(loan.Left)
	if loan.Lent == 0 && a.unused <= 0 {
		return false
	}
	a.unused += loan.Lent - n
	return true
}

// flows counts what flows here, which is what this process goes by when it is alone.
func (f *Fleet) flows(caller string, l Limit, n, now int64, lease Lease) Lease {
	l.Cut = false
	lease.OK, lease.began = true, f.local.Spend(caller, l, n, now).began
	return lease
}

// Return implements Counter.
func (f *Fleet) Return(caller string, lease Lease, unused int64) {
	if !lease.OK || unused <= 0 {
		return
	}
	f.local.Return(caller, lease, unused)
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.of[caller]; a != nil && lease.loan != 0 && lease.loan == a.loan.Began {
		a.unused += unused
	}
}

// Standing implements Counter.
func (f *Fleet) Standing(caller string, l Limit, now int64) Standing {
	if l.Bytes <= 0 {
		return Standing{}
	}
	loan, err := f.lender.Lend(caller, l, 0)
	if err != nil {
		if part := f.lender.Part(l); part.Bytes > 0 {
			return f.local.Standing(caller, part, now)
		}
		return Standing{Left: l.Bytes}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	here := int64(0) // lent, and still there
	if a := f.of[caller]; a != nil && a.loan.Began == loan.Began && now < a.ends {
		here = max(0, a.unused)
	}
	return Standing{Used: loan.Used - here, Left: max(0, l.Bytes-loan.Used) + here, Ends: loan.Left}
}

// Exhausted implements Counter.
func (f *Fleet) Exhausted(caller string, l Limit, now int64) bool {
	f.mu.Lock()
	a := f.of[caller]
	known := a != nil && now < a.ends && a.loan.Used >= l.Bytes && a.unused <= 0
	alone := a != nil && a.alone
	f.mu.Unlock()
	if alone && !known {
		part := f.lender.Part(l)
		return part.Bytes > 0 && f.local.Standing(caller, part, now).Exhausted() > 0
	}
	return l.Bytes > 0 && known
}
