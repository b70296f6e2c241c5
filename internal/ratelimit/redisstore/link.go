package redisstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialled is a hook of a client of one connection, which it remembers.
type dialled struct {
	mu   sync.Mutex
	conn net.Conn
}

// DialHook implements redis.Hook.
func (d *dialled) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.conn = conn
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (d *dialled) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (d *dialled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

var errAfresh = errors.New("another connection is made")

// link is one connection. One goroutine writes commands, also before earlier ones are
// answered, and another reads what is replied, so that both ends are at work.
type link struct {
	net.Conn
	client *redis.Client // that made it, and nothing else
	by     *redis.Conn
	silent time.Duration

	mu   sync.Mutex
	away []flight // written, and not answered
	dead error
}

// flight is the jobs of each of the commands that were written at once; none of one whose
// reply nobody needs.
type flight struct {
	commands [][]*job
	size     int64 // jobs
	loads    int64 // of the program, when it was written
}

// connect has go-redis make a connection, as it does: with its password, over TLS, to
// whichever server Sentinels say is the master, and closed when another is. What is said then
// is ours: go-redis says nothing unless it is asked to. The client is for this connection
// alone, and ends with it. The error is what a command would have had there.
func connect(ctx context.Context, client *redis.Client, sha1 string, silent time.Duration) (*link, error) {
	var d dialled
	client.AddHook(&d)
	by := client.Conn() // keeps what it has
	// Of nothing to do the program does nothing, and has the connection be made.
	if err := by.EvalSha(ctx, sha1, nil, "").Err(); err != nil && !isNoScript(err) {
		_, _ = by.Close(), client.Close()
		return nil, err
	}
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	_ = conn.SetDeadline(time.Time{}) // it had those of what was asked
	return &link{Conn: conn, client: client, by: by, silent: silent}, nil
}

// write writes the commands of a flight. Without error each is answered, or fails, in the
// reader; and with one too, if it is under way.
func (k *link) write(f flight, commands []byte) (underWay bool, err error) {
	k.mu.Lock()
	if k.dead != nil {
		k.mu.Unlock()
		return false, k.dead
	}
	k.away = append(k.away, f)
	until := time.Now().Add(k.silent)
	if len(k.away) == 1 {
		_ = k.SetReadDeadline(until)
	}
	k.mu.Unlock()
	_ = k.SetWriteDeadline(until)
	if _, err = k.Write(commands); err != nil {
		k.end(err)
	}
	return true, err
}

// answered takes a flight that is answered from those under way.
func (k *link) answered() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away = k.away[1:]; len(k.away) == 0 {
		_ = k.SetReadDeadline(time.Time{})
	} else {
		_ = k.SetReadDeadline(time.Now().Add(k.silent))
	}
}

// first is the flight whose replies come next; none if nothing was asked.
func (k *link) first() (f flight, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.away) == 0 {
		return f, false
	}
	return k.away[0], true
}

// end has nothing be written any more, and returns why: the first that was wrong.
func (k *link) end(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead == nil {
		k.dead = err
		_ = k.Close()
	}
	return k.dead
}

// receive reads what is replied until the connection ends, and hands each job its part. It
// looks also while nothing was asked: so it is known that a connection is gone before it is
// needed.
func (l *lane) receive(k *link) {
	defer l.store.running.Done()
	defer func() { _, _ = k.by.Close(), k.client.Close() }()
	r := &replies{Reader: bufio.NewReaderSize(k, 1<<16)}
	for {
		_, broken := r.Peek(1)
		f, found := k.first()
		if broken == nil && !found {
			broken = errReply
		}
		if broken != nil {
			broken = k.end(broken)
		}
		var unable error // to load the program, which says more than that Redis has none
		for _, jobs := range f.commands {
			var numbers []byte
			var others []string
			err := broken
			if broken == nil {
				if numbers, others, err, broken = r.read(); broken != nil {
					broken = k.end(broken)
					err = broken
				}
			}
			switch {
			case jobs == nil && err != nil:
				unable = err
			case isNoScript(err) && unable != nil:
				err = unable
			}
			l.answer(jobs, f.loads, numbers, others, err)
		}
		if found {
			k.answered()
			l.landed(&f)
		}
		if broken != nil && !found {
			return
		}
	}
}
