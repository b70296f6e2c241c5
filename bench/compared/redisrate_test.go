package compared

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func redisRate() peer {
	limitOf := func(q quota) redis_rate.Limit {
		return redis_rate.Limit{Rate: q.count, Period: q.period, Burst: q.burst}
	}
	raw := func(rate, burst int, period time.Duration) func() (subject, error) {
		return func() (subject, error) {
			return newRedisRate(redis_rate.Limit{Rate: rate, Period: period, Burst: burst}, limitOf), nil
		}
	}
	return peer{
		name: "redis_rate", module: "github.com/go-redis/redis_rate/v10",
		how:       "`AllowN` by go-redis over miniredis, whose `TIME` is set; a change of limit is another `Limit` at the next call",
		wallClock: true,
		make:      func(q quota) subject { return newRedisRate(limitOf(q), limitOf) },
		nonsense: map[string]nonsense{
			rateZero: {written: "Limit{Rate: 0, Burst: 10, Period: 1s}", make: raw(0, 10, time.Second)},
			rateLess: {written: "Limit{Rate: -1, Burst: 10, Period: 1s}", make: raw(-1, 10, time.Second)},
			burstNil: {written: "Limit{Rate: 1, Burst: 0, Period: 1s}", make: raw(1, 0, time.Second)},
			burstBig: {written: "Limit{Rate: 1, Burst: 110_000, Period: 24h}", make: raw(1, 110_000, 24*time.Hour)},
		},
		documented: map[string]string{rateZero: "Known as [redis_rate#110](https://github.com/go-redis/redis_rate/issues/110)"},
	}
}

// short is what Redis says of a script that failed, without where that was, which
// miniredis tells in other words.
func short(err error) error {
	const cause = "ERR value is not an integer or out of range"
	if strings.Contains(err.Error(), cause) {
		return errors.New(cause)
	}
	return err
}

func newRedisRate(limit redis_rate.Limit, limitOf func(quota) redis_rate.Limit) subject {
	server, client := redisServer()
	limiter := redis_rate.NewLimiter(client)
	takeN := func(key string, n int) answer {
		r, err := limiter.AllowN(context.Background(), key, limit, n)
		if err != nil {
			return answer{err: short(err)}
		}
		// Allowed is n or 0. Of an n of 0 the wait tells, which is -1 if it is allowed.
		admitted := r.Allowed == n && (n != 0 || r.RetryAfter == -1)
		return answer{admitted: admitted, wait: func() (time.Duration, bool) { return r.RetryAfter, false }}
	}
	return subject{
		set:    setter(server),
		take:   func(key string) answer { return takeN(key, 1) },
		takeN:  takeN,
		change: func(q quota) { limit = limitOf(q) },
	}
}

// redisServer returns an empty server, whose keys expire by the time that is set.
func redisServer() (*miniredis.Miniredis, *redis.Client) {
	server := miniredis.NewMiniRedis()
	server.SetTime(origin)
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		panic(err)
	}
	cleanups = append(cleanups, server.Close)
	client := redis.NewClient(&redis.Options{
		Addr:                     server.Addr(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	cleanups = append(cleanups, func() { client.Close() })
	return server, client
}

// setter sets the time of server. Keys of Redis expire at an instant of its clock,
// so that when this is set back they have so much longer to live; miniredis counts
// down what they have left.
func setter(server *miniredis.Miniredis) func(time.Duration) {
	last := time.Duration(0)
	return func(t time.Duration) {
		back := last - t
		last = t
		server.SetTime(origin.Add(t))
		if back <= 0 {
			return
		}
		for _, key := range server.Keys() {
			if ttl := server.TTL(key); ttl > 0 {
				server.SetTTL(key, ttl+back)
			}
		}
	}
}

// cleanups end what the subjects of one check have begun.
var cleanups []func()

func cleanUp() {
	for _, f := range cleanups {
		f()
	}
	cleanups = nil
}
