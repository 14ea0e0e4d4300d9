#include "fairlane-queue-disc.h"

#include <ns3/abort.h>
#include <ns3/drop-tail-queue.h>
#include <ns3/log.h>
#include <ns3/object-factory.h>
#include <ns3/simulator.h>
#include <ns3/socket.h>
#include <ns3/string.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <sstream>

namespace ns3
{

NS_LOG_COMPONENT_DEFINE("FairlaneQueueDisc");
NS_OBJECT_ENSURE_REGISTERED(FairlaneQueueDisc);

TypeId
FairlaneQueueDisc::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::FairlaneQueueDisc")
            .SetParent<QueueDisc>()
            .SetGroupName("TrafficControl")
            .AddConstructor<FairlaneQueueDisc>()
            .AddAttribute("Algorithm",
                          "Who is next: qfq, qfq+, wf2q+, drr, ...",
                          StringValue("qfq"),
                          MakeStringAccessor(&FairlaneQueueDisc::m_algorithm),
                          MakeStringChecker())
            .AddAttribute("Weights",
                          "Weight of each class, 1 to 1000000, with commas between them.",
                          StringValue("1"),
                          MakeStringAccessor(&FairlaneQueueDisc::m_weights),
                          MakeStringChecker())
            .AddAttribute("MaxLength",
                          "Longest packet, in bytes with its IP header; longer ones are dropped.",
                          UintegerValue(1500),
                          MakeUintegerAccessor(&FairlaneQueueDisc::m_maxLength),
                          MakeUintegerChecker<uint32_t>(1, 65535))
            .AddAttribute("Limit",
                          "Packets that wait in a class; further ones are dropped.",
                          UintegerValue(1000),
                          MakeUintegerAccessor(&FairlaneQueueDisc::m_limit),
                          MakeUintegerChecker<uint32_t>(1));
    return tid;
}

FairlaneQueueDisc::FairlaneQueueDisc()
    : QueueDisc(QueueDiscSizePolicy::NO_LIMITS),
      m_scheduler{0}
{
}

FairlaneQueueDisc::~FairlaneQueueDisc()
{
    Close();
}

void
FairlaneQueueDisc::DoDispose()
{
    Close();
    QueueDisc::DoDispose();
}

void
FairlaneQueueDisc::Close()
{
    // Packets belong to ns-3, and are freed with the internal queues.
    fl_scheduler_close(m_scheduler);
    m_scheduler.id = 0;
}

void
FairlaneQueueDisc::Check(const char* what, fl_status status)
{
    if (status != FL_OK)
    {
        NS_FATAL_ERROR(what << ": " << fl_strerror(status));
    }
}

std::size_t
FairlaneQueueDisc::ClassOf(Ptr<QueueDiscItem> item)
{
    int32_t filtered = Classify(item);
    if (filtered != PacketFilter::PF_NO_MATCH)
    {
        return static_cast<std::size_t>(std::max(filtered, 0)) % m_flowOf.size();
    }
    SocketPriorityTag tag;
    std::size_t priority = item->GetPacket()->PeekPacketTag(tag) ? tag.GetPriority() : 0;
    return priority % m_flowOf.size();
}

bool
FairlaneQueueDisc::DoEnqueue(Ptr<QueueDiscItem> item)
{
    std::size_t number = ClassOf(item);
    fl_packet packet{PeekPointer(item), m_flowOf[number], 0, item->GetSize(), 0};
    uint64_t now = Simulator::Now().GetNanoSeconds();
    fl_status status = fl_enqueue(m_scheduler, now, &packet, 1, nullptr);
    if (status != FL_OK)
    {
        NS_LOG_LOGIC("rejected: " << fl_strerror(status));
        DropBeforeEnqueue(item, fl_strerror(status));
        return false;
    }
    // It has room for all packets that the scheduler accepts.
    return GetInternalQueue(number)->Enqueue(item);
}

Ptr<QueueDiscItem>
FairlaneQueueDisc::DoDequeue()
{
    fl_packet packet;
    std::size_t count;
    uint64_t now = Simulator::Now().GetNanoSeconds();
    Check("dequeue", fl_dequeue(m_scheduler, now, &packet, 1, &count, nullptr));
    if (count == 0)
    {
        return nullptr;
    }
    auto found = std::find(m_flowOf.begin(), m_flowOf.end(), packet.flow);
    NS_ABORT_MSG_IF(found == m_flowOf.end(), "a packet of no class");
    Ptr<QueueDiscItem> item = GetInternalQueue(found - m_flowOf.begin())->Dequeue();
    NS_ABORT_MSG_IF(PeekPointer(item) != packet.data, "another packet than the scheduler's");
    return item;
}

bool
FairlaneQueueDisc::CheckConfig()
{
    if (GetNQueueDiscClasses() > 0 || GetNInternalQueues() > 0)
    {
        NS_LOG_ERROR("FairlaneQueueDisc makes its queues itself");
        return false;
    }
    m_weightOf.clear();
    std::istringstream weights(m_weights);
    for (std::string weight; std::getline(weights, weight, ',');)
    {
        m_weightOf.push_back(static_cast<uint32_t>(std::strtoul(weight.c_str(), nullptr, 10)));
        ObjectFactory factory("ns3::DropTailQueue<QueueDiscItem>");
        factory.Set("MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, m_limit)));
        AddInternalQueue(factory.Create<InternalQueue>());
    }
    return !m_weightOf.empty();
}

void
FairlaneQueueDisc::InitializeParams()
{
    Close();
    fl_scheduler_options options{};
    options.size = sizeof options;
    options.algorithm = m_algorithm.c_str();
    options.flow_packets = m_limit;
    Check("algorithm", fl_scheduler_open(&options, &m_scheduler));
    m_flowOf.clear();
    for (uint32_t weight : m_weightOf)
    {
        fl_flow_options flow{};
        flow.size = sizeof flow;
        flow.weight = weight;
        flow.max_length = m_maxLength;
        m_flowOf.push_back(0);
        Check("class", fl_flow_add(m_scheduler, &flow, &m_flowOf.back()));
    }
}

} // namespace ns3
