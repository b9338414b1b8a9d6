package main

import (
	"context"
	"crypto/sha256"
	"math/rand"

	"github.com/apache/rocketmq-client-go/v2/producer"
)

const maxBody = 4 * 1024 * 1024

// boundaries: the largest body, and one byte more; a body of one byte; names with every character that is allowed.
func boundaries(cluster *Cluster) Outcome {
	topic := cluster.createTopic("boundaries-%|_AZaz09", 1, readWrite)
	sender := cluster.producer("boundaries", producer.WithCompressMsgBodyOverHowmuch(maxBody*2))
	noise := make([]byte, maxBody+1)
	rand.New(rand.NewSource(1)).Read(noise)
	largest := string(noise[:maxBody])
	outcome := Outcome{}
	for name, body := range map[string]string{"4 MiB": largest, "4 MiB + 1 byte": string(noise), "one byte": "1", "a zero": "\x00"} {
		_, err := sender.SendSync(context.Background(), message(topic, body).WithTag("tag"))
		outcome[name] = code(err)
	}
	must(sender.Shutdown())
	reader, inbox := cluster.consumer("boundaries-%|_AZaz09", topic, tag("*"), nil)
	inbox.untilBodies(3)
	must(reader.Shutdown())
	for _, one := range inbox.all() {
		if sha256.Sum256([]byte(one.body)) == sha256.Sum256([]byte(largest)) {
			outcome["largest is whole"] = true
		}
	}
	return outcome
}
