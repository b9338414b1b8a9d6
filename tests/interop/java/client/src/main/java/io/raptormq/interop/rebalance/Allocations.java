package io.raptormq.interop.rebalance;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints how the official client divides queues. Argument: a file of JSON cases, each with "strategy", "queues" [[topic, broker, queue], ...] and
 * "members", both in the order of the client, and the settings of the strategy. One line for each case: for each member the indexes of its queues.
 */
public final class Allocations {
    private Allocations() {}

    public static void main(String[] arguments) throws IOException {
        String text = Files.readString(Path.of(arguments[0]), StandardCharsets.UTF_8);
        StringBuilder out = new StringBuilder();
        for (Object each : JSON.parseArray(text)) {
            out.append("shares ").append(JSON.toJSONString(shares((JSONObject) each))).append('\n');
        }
        System.out.print(out);
    }

    private static List<List<Integer>> shares(JSONObject one) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object each : one.getJSONArray("queues")) {
            JSONArray parts = (JSONArray) each;
            queues.add(new MessageQueue(parts.getString(0), parts.getString(1), parts.getIntValue(2)));
        }
        List<String> members = one.getJSONArray("members").toJavaList(String.class);
        List<List<Integer>> shares = new ArrayList<>();
        for (String member : members) {
            List<Integer> share = new ArrayList<>();
            for (MessageQueue queue : strategy(one, queues).allocate("g", member, queues, members)) {
                share.add(queues.indexOf(queue));
            }
            shares.add(share);
        }
        return shares;
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject one, List<MessageQueue> queues) {
        switch (one.getString("strategy")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(one.getIntValue("nodes"));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new TreeSet<>(one.getJSONArray("rooms").toJavaList(String.class)));
                return byRoom;
            case "NEARBY_AVG":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new BeforeAt());
            case "NEARBY_CIRCLE":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), new BeforeAt());
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                List<MessageQueue> configured = new ArrayList<>();
                one.getJSONArray("configured").toJavaList(Integer.class).forEach(index -> configured.add(queues.get(index)));
                byConfig.setMessageQueueList(configured);
                return byConfig;
            default:
                throw new IllegalArgumentException(one.getString("strategy"));
        }
    }

    /** Rooms are the parts of the names before the first "@". */
    private static final class BeforeAt implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[0];
        }
    }
}
