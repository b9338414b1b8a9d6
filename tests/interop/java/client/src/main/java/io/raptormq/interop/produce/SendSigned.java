package io.raptormq.interop.produce;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Sends the numbers 0, 1, ... with the credentials of RAPTORMQ_ACCESS_KEY and RAPTORMQ_SECRET_KEY until a file exists, each again until it is acknowledged, and reads
 * the topic. Prints "sending" after the first acknowledgement and a last line of JSON: acknowledged and missing messages, the longest time (s) without an
 * acknowledgement, and how often each failure occurred. Arguments: name servers, topic, prefix of the numbers, the file.
 */
public final class SendSigned {
    private static final int PATIENCE_MS = 3_000;
    private static final int PAUSE_MS = 20;
    private static final int LONGEST_FAILURE_CHARS = 160;
    private static final int POLL_MS = 1_000;
    private static final int READ_LIMIT_S = 120;

    private SendSigned() {}

    public static void main(String[] arguments) {
        int code = 1;
        try {
            send(arguments);
            code = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(code); // threads of the client would keep the process
    }

    private static void send(String[] arguments) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(System.getenv("RAPTORMQ_ACCESS_KEY"), System.getenv("RAPTORMQ_SECRET_KEY")));
        DefaultMQProducer producer = new DefaultMQProducer("send-signed", hook);
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        Path stop = Path.of(arguments[3]);
        Set<String> acknowledged = new HashSet<>();
        Map<String, Integer> failures = new TreeMap<>();
        long last = System.nanoTime();
        long longest = 0;
        while (!Files.exists(stop)) {
            String body = arguments[2] + acknowledged.size();
            try {
                Message message = new Message(arguments[1], body.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message, PATIENCE_MS).getSendStatus() == SendStatus.SEND_OK) {
                    acknowledged.add(body);
                    longest = Math.max(longest, System.nanoTime() - last);
                    last = System.nanoTime();
                    if (acknowledged.size() == 1) {
                        System.out.println("sending");
                        longest = 0;
                    }
                }
            } catch (MQBrokerException | MQClientException | RemotingException error) {
                String text = String.valueOf(error.getMessage());
                failures.merge(text.substring(0, Math.min(text.length(), LONGEST_FAILURE_CHARS)), 1, Integer::sum);
            }
            Thread.sleep(PAUSE_MS);
        }
        producer.shutdown();
        int count = acknowledged.size();
        Set<String> missing = missing(acknowledged, arguments[0], arguments[1], hook);
        System.out.println(JSON.toJSONString(Map.of(
                "acknowledged", count, "missing", missing.size(), "longest_gap_s", longest / 10_000_000L / 100.0, "failures", failures)));
    }

    /**
     * What of the numbers is not in the topic. Others may go on sending to it, so that it never ends. The group has no offsets and so begins at the first message:
     * a seek would race with the pulls of this client and skip what they have brought. A broker that was made anew may not be found for 30 s, in which the JVM keeps
     * the address of before; so it reads until everything is there, or the limit is over.
     */
    private static Set<String> missing(Set<String> numbers, String nameServers, String topic, RPCHook hook) throws MQClientException {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("send-signed-reader", hook);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setNamesrvAddr(nameServers);
        consumer.setAutoCommit(false);
        consumer.start();
        Set<String> missing = new HashSet<>(numbers);
        long deadline = System.nanoTime() + READ_LIMIT_S * 1_000_000_000L;
        consumer.assign(consumer.fetchMessageQueues(topic));
        while (!missing.isEmpty() && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(POLL_MS)) {
                missing.remove(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        consumer.shutdown();
        return missing;
    }
}
