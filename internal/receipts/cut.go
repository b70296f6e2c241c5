package receipts

import "io"

// cut removes the bytes of the last segment from offset on, after keeping them in
// the quarantine folder, and writes a record of that in their place. Records of a
// torn batch that stand before offset are kept.
//
// This start may be torn as well. So what is cut and the record of it reach the
// disk in one write: in two, a crash between them would leave a cut that nothing
// tells of. It is one batch too, which begins with the entry that the torn one
// began with. Of two, the second could reach the disk without the first, and
// would look as if what stands before it had once been synced.
func (l *Log) cut(f file, p *past, w *walker, known *checkpoint, offset int64) error {
	begin, count := offset, w.batch.Count-w.left
	var kept []byte // the whole records of the torn batch
	switch line := int64(len(appendBatchLine(nil, w.batch))); {
	case w.left == 0:
		count = 0
	case count == 0:
		begin = w.batchAt.Offset
		offset = begin
	default:
		begin = w.batchAt.Offset
		kept = make([]byte, offset-begin-line)
		if _, err := f.ReadAt(kept, begin+line); err != nil {
			return err
		}
	}
	repair, err := l.quarantine(f, segmentName(p.last), offset)
	if err != nil {
		return err
	}
	var told []byte
	n, rest := uint64(0), int64(0)
	if repair != nil {
		repair.Kept = int64(count)
		l.logger.Warn("the receipt log had a torn tail; it was cut", "file", repair.File, "offset", repair.Offset, "bytes", repair.Bytes, "kept", count)
		told, n = l.tell(p, w, repair)
		rest = repair.Offset + repair.Bytes
	}
	var unit []byte
	if n > 0 && count == 0 {
		if unit, err = l.before(f, p, w, begin); err != nil {
			return err
		}
	}
	if n+count > 0 {
		b := batchLine{w.tree.size - count, n + count, int64(len(kept) + len(told))}
		line := appendBatchLine(nil, b)
		if count > 0 {
			l.recent.move(place{segment: p.last, at: begin}, int64(len(line)-len(appendBatchLine(nil, w.batch))))
			w.batch = b
		}
		unit = append(append(append(unit, line...), kept...), told...)
	}
	end := begin + int64(len(unit))
	// Zeros over what is left: they are no data, whether or not the file's new
	// size is on disk as well.
	if err := writeAll(f, append(unit, make([]byte, max(0, rest-end))...), begin); err != nil {
		return err
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	if err := syncAll(f); err != nil {
		return err
	}
	// What was read before stays read; the walk goes on with what is new.
	w.left, w.leftBytes = 0, 0
	w.reader.goTo(end)
	if n > 0 && count > 0 {
		w.left, w.leftBytes = n, int64(len(told))
		w.reader.goTo(end - w.leftBytes)
	} else if n > 0 {
		w.reader.goTo(begin)
	}
	if _, err := l.walk(p, w, known); err != io.EOF {
		return err
	}
	return nil
}

// tell returns the lines of what a start has to say of a repair, as the log's next
// entries, and how many they are.
func (l *Log) tell(p *past, w *walker, repair *Recovery) (lines []byte, n uint64) {
	records := []*Record{{Kind: KindRecovery, Recovery: repair}}
	switch {
	case w.tree.size == 0: // it begins with its key
		records = append([]*Record{{Kind: KindKey, VKey: l.key.vkey}}, records...)
	case p.sealed: // which it is no longer
		records = append([]*Record{{Kind: KindHeartbeat}}, records...)
	}
	seq := uint64(0)
	if b := w.branches[""]; b != nil {
		seq = b.seq
	}
	for i, r := range records {
		var s slot
		r.ID, r.Time, r.Seq, r.Replica, r.Interval = l.newID(), l.clock.Now(), seq+1+uint64(i), l.replica, l.interval
		l.encode(&s, r, w.tree.size+uint64(i))
		lines = append(lines, s.line...)
	}
	return lines, uint64(len(records))
}

// before returns what has to stand at begin before another batch: the header of
// an empty segment, and the checkpoint over all entries, where none does.
func (l *Log) before(f file, p *past, w *walker, begin int64) (unit []byte, err error) {
	if begin == 0 {
		unit = l.headerOf(p.last)
	}
	if w.tree.size == 0 || w.lastCheckpoint == w.tree.size {
		return unit, nil
	}
	// Nothing is signed that is not on disk.
	if err := rewrite(f, w.uncheckedFrom(p.last), begin); err != nil {
		return nil, err
	}
	signed, err := checkpoint{l.key.origin, w.tree.size, w.tree.root()}.sign(l.key.signer)
	return appendCheckpointLine(unit, signed), err
}

// rewrite writes bytes of a file that stand there already, and waits until they
// are on disk. What this process reads may be in the system's memory only; and to
// sync them is not enough: where a sync of the process before has failed, Linux
// takes them for written, and the next one succeeds and writes nothing
// (https://lwn.net/Articles/752063/).
func rewrite(f file, from, to int64) error {
	b := make([]byte, max(0, to-from))
	if _, err := f.ReadAt(b, from); err != nil && err != io.EOF {
		return err
	}
	if err := writeAll(f, b, from); err != nil {
		return err
	}
	return syncAll(f)
}
