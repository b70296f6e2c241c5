package receipts

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// publishEvery bounds the age of the checkpoint file, and how often it is
// replaced. A replaced file costs about as much as two syncs (ext4 flushes the
// new one's bytes, and the journal carries both names), so to do it after each
// commit would halve the speed of a caller who is alone.
const publishEvery = time.Second

// due is how long the checkpoint file may stay as it is: 0 when its time has
// come, and less than 0 when it is the newest already.
func (l *Log) due() time.Duration {
	if l.published {
		return -1
	}
	return max(0, publishEvery-l.clock.Since(l.publishedAt))
}

// rest puts the newest checkpoint where others find it, when nothing waits: as
// the last line of the segments, and in the checkpoint file when that is due.
// Neither is synced. Both are over durable entries, and what a crash loses of
// them the next start signs again, byte for byte the same.
func (l *Log) rest() {
	err := l.watched(func() error {
		if err := l.storeSigned(); err != nil {
			return err
		}
		if l.due() == 0 {
			if err := l.publish(false); err != nil {
				l.unpublished(err)
			}
		}
		return nil
	})
	if err != nil {
		l.fail(nil, err)
	}
}

// unpublished notes that the checkpoint file could not be replaced. It is a copy
// of what stands in the segments: the log goes on, says so once, and tries again
// in a second. What fails the log is a segment that cannot be made, written or
// synced, and a first key that cannot get its name.
func (l *Log) unpublished(err error) {
	l.publishedAt = l.clock.Now()
	if !l.warned {
		l.warned = true
		l.logger.Warn("the checkpoint file cannot be written; the log goes on, and it is tried again each second", "file", filepath.Join(l.folder, checkpointFile), "error", err)
	}
}

func (l *Log) storeSigned() error {
	if l.signedIn {
		return nil
	}
	// The segment is empty after a crash that came once its name was there.
	err := l.segment.write(appendCheckpointLine(l.header(), l.signed))
	if isFull(err) { // it stands before the next batch then, in the same place
		return nil
	}
	if err != nil {
		return err
	}
	l.signedIn = true
	return nil
}

// publishLast leaves the newest checkpoint on disk, in both places. Not in the file
// alone: behind a border it is by a key that no header names yet where there was no
// room for one, or no sync.
func (l *Log) publishLast() error {
	if err := errors.Join(l.storeSigned(), l.segment.sync()); err != nil {
		return err
	}
	if l.segment.size == 0 {
		return nil
	}
	return l.publish(true)
}

// publish replaces the checkpoint file.
func (l *Log) publish(durable bool) error {
	tmp := filepath.Join(l.folder, ".checkpoint.new")
	f, err := l.disk.open(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	err = writeAll(f, l.signed, 0)
	if durable {
		err = errors.Join(err, syncAll(f))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := l.disk.rename(tmp, filepath.Join(l.folder, checkpointFile)); err != nil {
		return err
	}
	l.published, l.publishedAt, l.warned = true, l.clock.Now(), false
	if durable {
		return l.disk.syncDir(l.folder)
	}
	return nil
}
