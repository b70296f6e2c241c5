package shared

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// Keys and tenants of the calls, under limits that refuse nobody.
const (
	keys    = 1000
	tenants = 100
	slots   = 1 << 20
	rate    = 1_000_000
)

// contender makes calls, from many goroutines.
type contender struct {
	name string
	call func(i int) error
}

// calls are what a limiter is asked for.
type calls struct {
	limiter *ratelimit.Shared
	keys    []*ratelimit.Ref
	to      []ratelimit.Admission
	clock   ratelimit.Clock
}

// newCalls are calls that take a token of key, tenant and key at the service, and a slot; or,
// with two buckets, of key and tenant alone.
func newCalls(store ratelimit.Store, replica string, buckets int) *calls {
	c := &calls{clock: ratelimit.NewClock(clockwork.NewRealClock())}
	c.limiter = ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: replica, Away: ratelimit.PolicyClosed})
	limit := ratelimit.Limit{Interval: int64(time.Second / rate), Burst: rate}
	service := ratelimit.NewService("tools", 0)
	ofService := ratelimit.Limit{}
	if buckets == 3 {
		ofService = limit
	}
	for i := range keys {
		key := "key-" + strconv.Itoa(i)
		c.keys = append(c.keys, ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, key, limit))
		c.to = append(c.to, ratelimit.Admission{
			Tenant:  ratelimit.NewTenant(ratelimit.Registered, "tenant-"+strconv.Itoa(i%tenants), limit, slots),
			Bucket:  ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket(key, "tools"), ofService),
			Service: service,
		})
	}
	return c
}

func (c *calls) call(i int) error {
	i %= keys
	now := c.clock.Nanos()
	t, v := c.limiter.Admit(c.limiter.Defer(c.keys[i], now), c.to[i], now)
	if v.Outcome != ratelimit.Admitted {
		return fmt.Errorf("a call was not admitted: %v", v.Outcome)
	}
	t.Release()
	return nil
}

// batched is the gateway's own way.
func batched(t *testing.T, url string, buckets int) contender {
	store, err := redisstore.Open(redisstore.Options{URL: url, Clock: clockwork.NewRealClock(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return contender{fmt.Sprintf("agentgw: %d buckets, a slot, and its release", buckets), newCalls(store, fmt.Sprint("batched", buckets), buckets).call}
}

// pool decides by the same script through go-redis' pool as it comes, which does best with
// the script by itself, one EVALSHA for each call, and a plain ZREM for its release, of which
// whoever gives it back sees the answer.
type pool struct {
	client *redis.Client
	decide *redis.Script
}

func pooled(t *testing.T, url string, size int) contender {
	p := pool{connect(t, url, size), redis.NewScript(decideAlone(t))}
	if err := p.decide.Load(context.Background(), p.client).Err(); err != nil {
		t.Fatal(err)
	}
	return contender{fmt.Sprintf("the same script alone, go-redis' pool of %d: 3 buckets, a slot, and ZREM", size), newCalls(p, fmt.Sprint("pooled", size), 3).call}
}

// decideAlone is the script that decides, without what has many jobs run at once.
func decideAlone(t *testing.T) string {
	var text strings.Builder
	for _, part := range []string{"args", "clock", "bucket", "slots", "window", "decide"} {
		b, err := os.ReadFile("../../internal/ratelimit/queries/" + part + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
		if part == "args" { // Redis itself refuses a first command for which it has no room
			text.WriteString("lastText = #ARGV\nlocal function needsRoom() end\n")
		}
	}
	return text.String()
}

func (p pool) Ask(job ratelimit.Job) (ratelimit.Answer, error) {
	numbers := make([]byte, 0, 8*len(job.Numbers))
	for _, n := range job.Numbers {
		numbers = binary.LittleEndian.AppendUint64(numbers, math.Float64bits(float64(n)))
	}
	reply, err := p.decide.EvalSha(context.Background(), p.client, job.Keys, numbers, job.Texts[0]).Text()
	if err != nil {
		return ratelimit.Answer{}, err
	}
	values := make([]int64, len(reply)/8-1) // after the time
	for i := range values {
		values[i] = int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(reply[8+8*i:]))))
	}
	return ratelimit.Answer{Number: answers.Add(1), Values: values}, nil
}

var answers atomic.Int64

func (p pool) Tell(job ratelimit.Job) {
	for _, set := range job.Keys {
		_ = p.client.ZRem(context.Background(), set, job.Texts[0]).Err()
	}
}

// rated is two buckets by redis_rate, and a lease by a script.
func rated(t *testing.T, url string, size int) contender {
	client := connect(t, url, size)
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: rate, Burst: rate, Period: time.Second}
	lease := redis.NewScript(`local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
	return 0
end
redis.call('ZADD', KEYS[1], now + 10000, ARGV[2])
redis.call('PEXPIRE', KEYS[1], 20000)
return 1`)
	var next atomic.Int64
	return contender{fmt.Sprintf("two redis_rate calls and a lease by script, go-redis' pool of %d: 2 buckets, a slot, and ZREM", size), func(i int) error {
		i %= keys
		ctx, tenant := context.Background(), strconv.Itoa(i%tenants)
		for _, bucket := range []string{"key-" + strconv.Itoa(i), "tenant-" + tenant} {
			if r, err := limiter.Allow(ctx, bucket, limit); err != nil || r.Allowed != 1 {
				return errors.Join(err, errors.New("redis_rate did not allow"))
			}
		}
		set, id := "slots-"+tenant, strconv.FormatInt(next.Add(1), 36)
		if n, err := lease.Run(ctx, client, []string{set}, slots, id).Int(); err != nil || n != 1 {
			return errors.Join(err, errors.New("no lease"))
		}
		return client.ZRem(ctx, set, id).Err()
	}}
}

func connect(t *testing.T, url string, size int) *redis.Client {
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = size
	o.PoolTimeout = time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
