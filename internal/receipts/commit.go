package receipts

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// run is the committer: the one goroutine that writes. Everything that waits
// shares the next write, sync and signature, so a slow disk makes batches
// larger instead of callers slower.
func (l *Log) run() {
	defer close(l.stopped)
	for {
		l.linger()
		if !l.interval {
			// Those who can run now add their records before the batch is taken.
			// It is theirs to be larger; one who is alone waits for nobody. In
			// interval mode what comes now has yet to wait for its time.
			runtime.Gosched()
		}
		l.provide()
		b, closing := l.take()
		if b == nil {
			if closing {
				return
			}
			l.rest()
			l.await()
			continue
		}
		l.bind(b)
		b.encoding.Wait()
		l.commit(b)
		// Under a load that never pauses the file would grow old. Nobody but
		// the committer, which this is, sets failure.
		if l.failure == nil && l.due() == 0 {
			l.rest()
		}
	}
}

// await returns when there is something to write, to publish, to bind or to say.
func (l *Log) await() {
	due := l.heartbeatDue()
	for _, other := range []time.Duration{l.due(), l.headsDue(), l.retryDue()} {
		if other >= 0 {
			due = min(due, other)
		}
	}
	timer := l.clock.NewTimer(due)
	defer timer.Stop()
	select {
	case <-l.wake:
	case <-timer.Chan():
	}
}

// take returns all that waits, or nil; that too where all of it has come since
// linger looked, and has yet to wait for its time.
func (l *Log) take() (b *batch, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return nil, true
	}
	ending := l.closing || l.contradicted != nil
	if l.stalledLocked() == nil && l.contradicted == nil {
		l.declareLocked()
	}
	if len(l.filling.slots) == 0 && l.contradicted == nil {
		l.queueOwnLocked()
	}
	l.idle = len(l.filling.slots) == 0
	if l.idle {
		return nil, ending
	}
	if l.patienceLocked() > 0 {
		l.nudge() // of what was queued here nobody has told: linger is to wait for it, and not await
		return nil, false
	}
	b = l.filling
	l.filling = newBatch(l.next, len(b.slots))
	if !l.closing && l.headsDueLocked() == 0 {
		l.queueHeadsLocked()
	}
	l.writing = b
	l.room.Broadcast()
	return b, l.closing
}

// commit writes b, and releases its callers when it is on disk and signed. Where
// there is no room for it the log is stalled until there is, and writes the same
// bytes to the same place: nothing else has been written behind them, so that a
// crash leaves nothing but the torn tail of one batch.
func (l *Log) commit(b *batch) {
	var began time.Time
	var at int64 // of its first record
	var err error
	for last := false; ; {
		began = l.clock.Now()
		err = l.watched(func() (err error) { at, err = l.persist(b); return err })
		var full *noRoom
		if last || !errors.As(err, &full) {
			break
		}
		l.fillUp(true, full.error)
		last = !l.waitForRoom()
	}
	if err != nil {
		l.fail(b, err)
		return
	}
	l.size.Add(uint64(len(b.slots)))
	l.added.Add(uint64(len(b.slots)))
	l.commits.Add(1)
	took := l.clock.Since(began)
	l.wroteAt = began.Add(took)
	if l.onCommit != nil {
		l.onCommit(len(b.slots), took)
	}
	// Before anybody learns that the records are there, and asks for a proof, for a
	// checkpoint over them or for one of them.
	l.trees.Lock()
	l.signing.Lock()
	l.recent.mu.Lock()
	l.mu.Lock()
	l.breatheLocked(len(b.slots), b.calls, took, l.wroteAt)
	for _, m := range b.passed {
		l.landedLocked(m)
	}
	if len(b.passed)+len(b.told) > 0 {
		l.notes.nudge()
	}
	l.writing = nil
	l.space.taken -= b.cost
	l.space.end = l.segment.size + frame
	close(b.done)
	b.answer.giveLocked(nil)
	l.mu.Unlock()
	// Those who waited go on first: nothing of what is left to do is theirs.
	runtime.Gosched()
	l.recent.addBatchLocked(b.slots, place{segment: l.segment.first, at: at})
	l.recent.mu.Unlock()
	err = l.signLocked(b)
	l.signing.Unlock()
	l.growLocked(b)
	l.trees.Unlock()
	l.storeLeaves()
	l.index.written(l.segment.size - at)
	for _, s := range b.slots {
		slots.Put(s)
	}
	if err != nil { // which no key does that a start has signed with
		l.fail(nil, err)
	}
}

// persist puts b on the disk. The error is a *noRoom where nothing of it counts as
// written. It returns where the first record stands.
func (l *Log) persist(b *batch) (at int64, err error) {
	if at, err = l.write(b); err == nil {
		err = l.segment.sync()
	}
	if err == nil && l.key.fresh {
		err = l.key.place(l.disk, l.dir)
	}
	return at, err
}

// signLocked takes b, which is on disk, into the log's tree, and signs it: a
// checkpoint is of entries that no crash takes back.
func (l *Log) signLocked(b *batch) (err error) {
	for _, s := range b.slots {
		if tile, full := l.tree.push(s.leaf); full {
			l.tiles = append(l.tiles, tile)
		}
	}
	l.signedIn, l.published = false, false
	l.signed, err = checkpoint{l.key.origin, l.tree.size, l.tree.root()}.sign(l.key.signer)
	return err
}

// growLocked takes b into the tenants' trees, and keeps what proofs need.
func (l *Log) growLocked(b *batch) {
	for i, s := range b.slots {
		var before uint64
		if s.branch != nil {
			l.grown.note(s.branch)
			before = s.branch.push(s.leaf, b.first+uint64(i))
		}
		l.leaves.add(l.segment.first, s.leaf, before)
	}
}

// storeLeaves writes the leaves that have gathered. What a disk that hangs keeps is
// the committer, which is watched, and nobody who wants a proof.
func (l *Log) storeLeaves() {
	if !l.leaves.due() {
		return
	}
	var written int
	var failed error
	_ = l.watched(func() error {
		written, failed = l.leaves.write()
		return nil // it was no record: that the disk has answered is enough
	})
	l.trees.Lock()
	l.leaves.letGo(written)
	l.trees.Unlock()
	if failed != nil {
		l.warnOfLeaves(failed)
	}
}

// warnOfLeaves says once that the derived files cannot be written. They fail
// nothing but proofs.
func (l *Log) warnOfLeaves(err error) {
	if !l.leavesWarned {
		l.leavesWarned = true
		l.logger.Warn("the hashes of entries cannot be written; the log goes on, and it is tried again, but until then there are no proofs", "folder", l.folder, "error", err)
	}
}

// write puts the batch into the segments, the checkpoint before it first. It
// returns where the first record stands.
func (l *Log) write(b *batch) (at int64, err error) {
	u := l.unit[:0]
	if !l.signedIn && l.signed != nil {
		u = appendCheckpointLine(u, l.signed)
	}
	bytes := 0
	for _, s := range b.slots {
		bytes += len(s.line)
	}
	if err := l.makeRoom(int64(len(u) + bytes)); err != nil {
		return 0, err
	}
	if h := l.header(); h != nil {
		u = append(h, u...)
	}
	u = appendBatchLine(u, batchLine{First: b.first, Count: uint64(len(b.slots)), Bytes: int64(bytes)})
	at = l.segment.size + int64(len(u))
	for _, s := range b.slots {
		u = append(u, s.line...)
	}
	l.unit = u
	if err := l.segment.write(u); err != nil {
		if isFull(err) {
			return 0, &noRoom{err}
		}
		return 0, err
	}
	return at, nil
}

// header is the header line where the segment has none yet.
func (l *Log) header() []byte {
	if l.segment.size > 0 {
		return nil
	}
	return l.headerOf(l.segment.first)
}

func (l *Log) headerOf(first uint64) []byte {
	return appendHeader(nil, header{Version: 1, Log: l.key.origin, First: first, VKey: l.key.vkey})
}

// makeRoom begins a new segment where n more bytes would take this one past its size.
func (l *Log) makeRoom(n int64) error {
	if l.segment != nil && (l.segment.size == 0 || l.segment.size+n <= l.limit && !l.old(l.began)) {
		return nil
	}
	if l.segment != nil {
		// Its last checkpoint line may be in memory only. A segment that has
		// another behind it is not the tail any more: it has to be whole.
		if err := l.segment.sync(); err != nil {
			return err
		}
	}
	return l.roll(n)
}

// roll goes on in a new segment. There has to be as much room in it as has been
// promised. Where there is not, the old one has it: it grows beyond its size then.
func (l *Log) roll(n int64) error {
	l.mu.Lock()
	l.space.rolling = true
	need, fits, full := l.space.taken, l.segment != nil && l.segment.size+n <= l.space.reserved, l.full
	l.mu.Unlock()
	var next *segment
	var reserved int64
	err := error(&noRoom{errFull})
	if !full || !fits {
		next, reserved, err = createSegment(l.disk, l.folder, l.tree.size, need, l.limit)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.space.rolling = false
	l.room.Broadcast()
	var none *noRoom
	if errors.As(err, &none) && fits {
		return nil
	}
	if err != nil {
		return err
	}
	if l.segment != nil {
		l.segment.close()
	}
	l.segment, l.began = next, l.clock.Now()
	l.space.end, l.space.reserved = headerRoom+frame, reserved
	return nil
}

// fail ends the log until a restart: after a failed write or sync nobody knows
// what is on the disk, and a later sync that succeeds does not say either (Linux
// reports an error once and forgets the pages).
func (l *Log) fail(b *batch, err error) {
	failure := fmt.Errorf("%w until a restart: %w", ErrUnavailable, err)
	l.mu.Lock()
	l.failure, l.reason = failure, reasonFailed
	waiting := l.filling
	if b != nil {
		l.untold = append(l.untold, b.told...)
	}
	l.untold = append(l.untold, waiting.told...)
	l.writing = nil
	l.filling = newBatch(l.next, 0)
	l.room.Broadcast()
	for _, b := range []*batch{b, waiting} {
		if b != nil {
			b.err = failure
			close(b.done)
			b.answer.giveLocked(failure)
		}
	}
	l.mu.Unlock()
	l.notes.nudge()
	l.logger.Error("receipt log failed; no receipt is taken until a restart", "folder", l.folder, "error", err)
}

// finish is what Close does after the committer has ended.
func (l *Log) finish() error {
	l.index.work.Wait()
	l.lastNote()
	if l.failure != nil { // the committer has ended: nobody writes it any more
		return errors.Join(l.failure, l.segment.file.Close(), l.lock.Close())
	}
	l.trees.Lock()
	_ = l.leaves.keep() // derived: the next start writes what is missing
	l.trees.Unlock()
	return errors.Join(l.publishLast(), l.segment.close(), l.lock.Close())
}
