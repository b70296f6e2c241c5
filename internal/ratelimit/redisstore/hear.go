package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// hearAgain is how long after a lost connection the next is made.
	hearAgain = 250 * time.Millisecond
	// silentFor is how long nothing may be heard before it is found out whether the connection lives.
	silentFor = 3 * time.Second
)

// hear tells what is published on the channel of this store, over a connection of its own,
// until the store ends. What is published while there is none is not heard, and nobody is told so: who
// relies on it has to look by himself too.
//
// On a Cluster it is the plain kind of channel, which any node may be asked for and all tell each
// other of. It is little: a message for each slot that somebody waits for. So nothing
// has to follow slots that move.
func (s *Store) hear() {
	defer s.running.Done()
	for at := 0; ; at++ {
		if l := s.speaker(at); l != nil {
			client := l.client()
			s.hearFrom(client)
			_ = client.Close()
		}
		pause := s.options.Clock.NewTimer(hearAgain)
		select {
		case <-s.ended.Done():
			pause.Stop()
			return
		case <-pause.Chan():
		}
	}
}

// speaker is the lane to a server to hear from: of several another one each time. It is nil if none is known.
func (s *Store) speaker(at int) *lane {
	if s.cluster == nil {
		return s.only
	}
	return s.cluster.any(at)
}

// hearFrom tells what a server says, until it says no more.
func (s *Store) hearFrom(client *redis.Client) {
	from := client.Subscribe(s.ended, s.options.Channel)
	defer context.AfterFunc(s.ended, func() { _ = from.Close() })()
	defer func() { _ = from.Close() }()
	for asked := false; ; {
		switch said, err := from.ReceiveTimeout(s.ended, silentFor); m := said.(type) {
		case *redis.Message:
			s.options.Heard(m.Payload)
			asked = false
		case nil:
			if reasonOf(err).Reason != Timeout || asked || from.Ping(s.ended) != nil {
				return
			}
			asked = true
		default: // that it hears, or that it lives
			asked = false
		}
	}
}
